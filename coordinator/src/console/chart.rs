//! Charts as shapes within a box of fixed size. Their labels are text beside them, so that they can be read at any
//! width.

use serde_json::{Value, json};

/// The box, whose sides the page stretches.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 120.0;

/// Bars that stand on each other, one place after the other: what each place has of each kind, lowest kind first.
pub(super) fn bars(kinds: &[&str], places: &[(String, Vec<u64>)]) -> Value {
    let most = places.iter().map(|(_, counts)| counts.iter().sum::<u64>()).max().unwrap_or_default();
    let step = WIDTH / (places.len().max(1) as f64);
    let height = |count: u64| count as f64 / (most.max(1) as f64) * HEIGHT;
    let drawn = places.iter().enumerate().filter(|(_, (_, counts))| counts.iter().any(|count| *count > 0));
    let drawn = drawn.map(|(place, (when, counts))| {
        let mut y = HEIGHT;
        let parts = kinds.iter().zip(counts).map(|(kind, &count)| {
            y -= height(count);
            json!({ "kind": kind, "y": round(y), "height": round(height(count)), "count": count })
        });
        let parts: Vec<Value> = parts.collect();
        json!({ "x": round(place as f64 * step + step * 0.1), "width": round(step * 0.8), "when": when, "parts": parts })
    });
    let bars: Vec<Value> = drawn.collect();
    let all = kinds.iter().enumerate().map(|(kind, name)| {
        let count: u64 = places.iter().filter_map(|(_, counts)| counts.get(kind)).sum();
        json!({ "kind": name, "count": count })
    });
    let all: Vec<Value> = all.collect();
    json!({ "bars": bars, "most": most, "all": all, "width": WIDTH, "height": HEIGHT })
}

/// A line over the time, with the area below it. What is not known leaves a gap.
pub(super) fn line(values: &[Option<f64>]) -> Value {
    let known = || values.iter().flatten().copied();
    let most = known().fold(0.0, f64::max);
    let step = WIDTH / (values.len().saturating_sub(1).max(1) as f64);
    let y = |value: f64| if most > 0.0 { HEIGHT - value / most * (HEIGHT - 2.0) } else { HEIGHT - 1.0 };
    let (mut stroke, mut area) = (String::new(), String::new());
    let known_before = |place: usize| place > 0 && values[place - 1].is_some();
    for (place, value) in values.iter().enumerate() {
        let x = place as f64 * step;
        match value {
            Some(value) if known_before(place) => {
                stroke.push_str(&format!("L{x:.1} {:.1}", y(*value)));
                area.push_str(&format!("L{x:.1} {:.1}", y(*value)));
            }
            Some(value) => {
                stroke.push_str(&format!("M{x:.1} {:.1}", y(*value)));
                area.push_str(&format!("M{x:.1} {HEIGHT:.1}L{x:.1} {:.1}", y(*value)));
            }
            None if known_before(place) => area.push_str(&format!("L{:.1} {HEIGHT:.1}Z", x - step)),
            None => {}
        }
    }
    if values.last().is_some_and(Option::is_some) {
        area.push_str(&format!("L{:.1} {HEIGHT:.1}Z", (values.len() - 1) as f64 * step));
    }
    json!({
        "stroke": stroke, "area": area, "most": most, "last": known().last(),
        "known": known().count(), "width": WIDTH, "height": HEIGHT,
    })
}

fn round(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_stand_on_each_other_and_fill_the_box() {
        let places =
            [("a".to_owned(), vec![3, 1]), ("b".to_owned(), vec![0, 0]), ("c".to_owned(), vec![2, 0])];
        let drawn = bars(&["completed", "failed"], &places);
        assert_eq!(drawn["most"], 4);
        assert_eq!(drawn["bars"].as_array().unwrap().len(), 2);
        let parts = &drawn["bars"][0]["parts"];
        assert_eq!(
            (&parts[0]["y"], &parts[0]["height"], &parts[1]["y"]),
            (&json!(30.0), &json!(90.0), &json!(0.0))
        );
        assert_eq!(drawn["all"][0]["count"], 5);
        assert_eq!(bars(&["completed"], &[])["bars"], json!([]));
    }

    #[test]
    fn a_gap_is_not_drawn_over() {
        let drawn = line(&[Some(1.0), Some(2.0), None, Some(2.0), None]);
        assert_eq!(drawn["stroke"].as_str().unwrap().matches('M').count(), 2);
        assert_eq!(drawn["area"].as_str().unwrap().matches('Z').count(), 2);
        assert_eq!((&drawn["most"], &drawn["last"]), (&json!(2.0), &json!(2.0)));
        for flat in [line(&[]), line(&[None]), line(&[Some(0.0)])] {
            assert!(!flat["stroke"].as_str().unwrap().contains("NaN"), "{flat}");
        }
    }
}
