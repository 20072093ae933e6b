//! Lays tasks out by what they wait for: each stands to the right of all that it depends on.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::words::clip;

const WIDTH: usize = 190;
const HEIGHT: usize = 46;
const GAP_X: usize = 56;
const GAP_Y: usize = 14;
const EDGE: usize = 8;
/// Letters in each of the two lines of a box.
const LETTERS: usize = 24;
/// Times that the rows are put in the order of their neighbours.
const SWEEPS: usize = 4;

/// Where everything is drawn, for the template.
pub(super) fn draw(tasks: &[Value]) -> Value {
    let graph = Graph::of(tasks);
    let columns = graph.columns();
    let places: BTreeMap<usize, (usize, usize)> = columns
        .iter()
        .enumerate()
        .flat_map(|(column, rows)| {
            rows.iter().enumerate().map(move |(row, &task)| (task, place(column, row)))
        })
        .collect();
    let nodes = tasks.iter().enumerate().map(|(number, task)| {
        let (x, y) = places[&number];
        let [first, second] = lines(task["task"].as_str().unwrap_or_default());
        let waits: Vec<&Value> = graph.needs[number].iter().map(|&need| &tasks[need]["id"]).collect();
        json!({
            "id": task["id"], "status": task["status"], "task": task["task"], "x": x, "y": y,
            "first": first, "second": second, "waits": waits,
        })
    });
    let edges = graph.needs.iter().enumerate().flat_map(|(number, needs)| {
        let places = &places;
        needs.iter().map(move |need| {
            let is_open = !matches!(tasks[*need]["status"].as_str(), Some("completed"));
            json!({ "path": curve(places[need], places[&number]), "open": is_open })
        })
    });
    let rows = columns.iter().map(Vec::len).max().unwrap_or_default();
    json!({
        "nodes": nodes.collect::<Vec<_>>(), "edges": edges.collect::<Vec<_>>(),
        "width": 2 * EDGE + (columns.len() * (WIDTH + GAP_X)).saturating_sub(GAP_X),
        "height": 2 * EDGE + (rows * (HEIGHT + GAP_Y)).saturating_sub(GAP_Y),
        "box_width": WIDTH, "box_height": HEIGHT,
    })
}

/// Tasks by their numbers.
struct Graph {
    /// What each waits for.
    needs: Vec<Vec<usize>>,
    /// Who waits for it.
    feeds: Vec<Vec<usize>>,
}

impl Graph {
    fn of(tasks: &[Value]) -> Self {
        let ids = tasks.iter().enumerate().filter_map(|(number, task)| Some((task["id"].as_str()?, number)));
        let ids: BTreeMap<&str, usize> = ids.collect();
        let needs: Vec<Vec<usize>> = tasks
            .iter()
            .enumerate()
            .map(|(number, task)| {
                let named = task["dependsOn"].as_array().into_iter().flatten();
                let known: BTreeSet<usize> = named
                    .filter_map(|id| ids.get(id.as_str()?).copied())
                    .filter(|need| *need != number)
                    .collect();
                known.into_iter().collect()
            })
            .collect();
        let mut feeds = vec![Vec::new(); tasks.len()];
        for (number, needs) in needs.iter().enumerate() {
            for &need in needs {
                feeds[need].push(number);
            }
        }
        Self { needs, feeds }
    }

    /// The longest way to each task from one that waits for nothing. Tasks that waited for each other would stay where
    /// they are: the pool makes none, but a picture must not hang on that.
    fn depths(&self) -> Vec<usize> {
        let mut depths = vec![0; self.needs.len()];
        let mut open: Vec<usize> = self.needs.iter().map(Vec::len).collect();
        let mut free: Vec<usize> = (0..open.len()).filter(|&number| open[number] == 0).collect();
        while let Some(number) = free.pop() {
            for &next in &self.feeds[number] {
                depths[next] = depths[next].max(depths[number] + 1);
                open[next] -= 1;
                if open[next] == 0 {
                    free.push(next);
                }
            }
        }
        depths
    }

    /// The tasks of each depth, near those that they belong to.
    fn columns(&self) -> Vec<Vec<usize>> {
        let depths = self.depths();
        let mut columns = vec![Vec::new(); depths.iter().max().map_or(0, |deepest| deepest + 1)];
        for (number, &depth) in depths.iter().enumerate() {
            columns[depth].push(number);
        }
        let mut rows = vec![0; depths.len()];
        let note = |column: &[usize], rows: &mut Vec<usize>| {
            for (row, &number) in column.iter().enumerate() {
                rows[number] = row;
            }
        };
        columns.iter().for_each(|column| note(column, &mut rows));
        for sweep in 0..SWEEPS {
            let (neighbours, forth) = if sweep % 2 == 0 { (&self.needs, true) } else { (&self.feeds, false) };
            for place in 0..columns.len() {
                let column = if forth { place } else { columns.len() - 1 - place };
                columns[column]
                    .sort_by_cached_key(|&number| (middle(&neighbours[number], &rows), rows[number]));
                note(&columns[column], &mut rows);
            }
        }
        columns
    }
}

/// The mean row of some tasks, in hundredths; those without any keep together at the end.
fn middle(of: &[usize], rows: &[usize]) -> usize {
    if of.is_empty() {
        return usize::MAX;
    }
    of.iter().map(|&number| rows[number] * 100).sum::<usize>() / of.len()
}

fn place(column: usize, row: usize) -> (usize, usize) {
    (EDGE + column * (WIDTH + GAP_X), EDGE + row * (HEIGHT + GAP_Y))
}

fn curve((x, y): (usize, usize), (to_x, to_y): (usize, usize)) -> String {
    let (x, y, to_y) = (x + WIDTH, y + HEIGHT / 2, to_y + HEIGHT / 2);
    let bend = (to_x.saturating_sub(x) / 2).max(GAP_X / 2);
    format!("M{x} {y}C{} {y} {} {to_y} {to_x} {to_y}", x + bend, to_x.saturating_sub(bend))
}

/// A text in two lines, broken between words where it can be.
fn lines(text: &str) -> [String; 2] {
    let text = clip(text, 2 * LETTERS);
    let mut first = String::new();
    for word in text.split_inclusive(' ') {
        if !first.is_empty() && first.chars().count() + word.trim_end().chars().count() > LETTERS {
            break;
        }
        first.push_str(word);
    }
    let cut = first.char_indices().nth(LETTERS).map_or(first.len(), |(at, _)| at);
    let rest = &text[cut..];
    [first[..cut].trim_end().to_owned(), clip(rest, LETTERS)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(of: &[(&str, &[&str])]) -> Vec<Value> {
        of.iter()
            .map(|(id, needs)| json!({ "id": id, "task": format!("do {id}"), "status": "pending", "dependsOn": needs }))
            .collect()
    }

    fn x(drawn: &Value, id: &str) -> u64 {
        let nodes = drawn["nodes"].as_array().unwrap();
        nodes.iter().find(|node| node["id"] == id).unwrap()["x"].as_u64().unwrap()
    }

    #[test]
    fn a_task_stands_right_of_all_that_it_waits_for() {
        let drawn =
            draw(&tasks(&[("d", &["b", "c"]), ("a", &[]), ("b", &["a"]), ("c", &["b", "elsewhere"])]));
        let order = ["a", "b", "c", "d"].map(|id| x(&drawn, id));
        assert!(order.is_sorted_by(|one, next| one < next), "{order:?}");
        assert_eq!(drawn["edges"].as_array().unwrap().len(), 4);
    }

    #[test]
    fn no_two_tasks_stand_on_each_other() {
        let many: Vec<Value> = (0..60_u32)
            .map(|number| {
                let needs: Vec<String> = (0..number)
                    .filter(|other| (number * 7 + other) % 11 == 0)
                    .map(|n| n.to_string())
                    .collect();
                json!({ "id": number.to_string(), "task": "x", "dependsOn": needs })
            })
            .collect();
        let drawn = draw(&many);
        let places: BTreeSet<(u64, u64)> = drawn["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|node| (node["x"].as_u64().unwrap(), node["y"].as_u64().unwrap()))
            .collect();
        assert_eq!(places.len(), 60);
    }

    #[test]
    fn a_circle_is_drawn_and_nothing_is_too() {
        assert_eq!(
            draw(&tasks(&[("a", &["b"]), ("b", &["a"]), ("c", &["c"])]))["nodes"].as_array().unwrap().len(),
            3
        );
        assert_eq!(draw(&[])["nodes"], json!([]));
    }

    #[test]
    fn labels_break_between_words() {
        let [first, second] = lines("Write the release notes for everybody who waits for them");
        assert_eq!(
            (first.as_str(), second.as_str()),
            ("Write the release notes", "for everybody who waits…")
        );
        let [first, second] = lines(&"ä".repeat(80));
        assert_eq!((first.chars().count(), second.chars().count()), (LETTERS, LETTERS + 1));
        assert_eq!(lines("short"), ["short".to_owned(), String::new()]);
    }
}
