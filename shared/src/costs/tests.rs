use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::code::Code;
use crate::day::Day;
use crate::id::{EntityKey, Kind, Name};
use crate::limits::{COST_DAYS, COST_SUMS, COSTS_KEPT};
use crate::testbed::Bench;

const DAY: Duration = Duration::from_secs(86_400);

fn bench() -> Bench<Costs> {
    Bench::new(EntityKey::of(Kind::Costs, &Name::parse("default").unwrap()))
}

fn agent(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn report(agent: Uuid, dollars: f64) -> Report {
    let cost = json!({ "totalCostUsd": dollars, "inputTokens": 100, "outputTokens": 20, "durationMs": 3000 });
    let (source, session) = (Source::Session, "s-1".to_owned());
    Report { source, session, agent, task: None, failed: false, cost: serde_json::from_value(cost).unwrap() }
}

fn note(bench: &mut Bench<Costs>, report: Report) -> serde_json::Value {
    match bench.run(Command::Report(Box::new(report))).unwrap() {
        Reply::Reported(report) => report,
        other => panic!("{other:?}"),
    }
}

fn sums(bench: &mut Bench<Costs>, wanted: Wanted) -> Sums {
    match bench.run(Command::Sum(wanted)).unwrap() {
        Reply::Sums(sums) => sums,
        other => panic!("{other:?}"),
    }
}

#[test]
fn reports_add_up_by_day_and_by_agent() {
    let mut bench = bench();
    let first = Day::of(bench.now);
    note(&mut bench, report(agent(1), 0.25));
    note(&mut bench, report(agent(2), 1.5));
    bench.advance(DAY);
    let shown = note(&mut bench, Report { task: Some(agent(9)), ..report(agent(1), 0.000_001) });
    assert_eq!(
        (&shown["model"], &shown["numTurns"], &shown["isError"]),
        (&json!("unknown"), &json!(1), &json!(false))
    );
    bench.restart();
    let Sums { all, days, agents } = sums(&mut bench, Wanted::default());
    assert_eq!((all.reports, all.cost_micros, all.input_tokens, all.duration_ms), (3, 1_750_001, 300, 9000));
    let by_day: Vec<_> = days.iter().map(|(day, sum)| (*day, sum.reports, sum.cost_micros)).collect();
    assert_eq!(by_day, [(first, 2, 1_750_000), (Day::of(bench.now), 1, 1)]);
    let by_agent: Vec<_> = agents.iter().map(|(agent, sum)| (*agent, sum.dollars())).collect();
    assert_eq!(by_agent, [(agent(2), 1.5), (agent(1), 0.250_001)]);
    let of_one = Wanted { agent: Some(agent(1)), from: None, to: Some(first) };
    assert_eq!(sums(&mut bench, of_one).all.cost_micros, 250_000);
    let later = Wanted { from: Some(Day::of(bench.now)), ..Wanted::default() };
    assert_eq!(sums(&mut bench, later).all.cost_micros, 1);
}

#[test]
fn what_is_no_cost_is_refused() {
    let mut bench = bench();
    for wrong in [-0.1, 1_000_001.0, f64::NAN, f64::INFINITY] {
        let mut wrong_report = report(agent(1), 0.0);
        wrong_report.cost.total_cost_usd = wrong;
        let refusal = bench.run(Command::Report(Box::new(wrong_report))).unwrap_err();
        assert_eq!(refusal.code, Code::InvalidArgument, "{wrong}");
    }
    let nameless = Report { session: String::new(), ..report(agent(1), 1.0) };
    assert!(bench.run(Command::Report(Box::new(nameless))).is_err());
    assert_eq!(sums(&mut bench, Wanted::default()).all, Sum::default());
}

#[test]
fn old_reports_and_days_go_and_sums_stay() {
    let mut bench = bench();
    let count = COSTS_KEPT + 2;
    for _ in 0..count {
        note(&mut bench, report(agent(1), 0.01));
    }
    assert_eq!(bench.entity.reports.len(), COSTS_KEPT);
    assert_eq!(sums(&mut bench, Wanted::default()).all.reports, count as u64);
    bench.advance(DAY * u32::from(COST_DAYS));
    note(&mut bench, report(agent(1), 0.01));
    assert_eq!(sums(&mut bench, Wanted::default()).all.reports, 1, "a day that is over for too long");
    assert_eq!(bench.restored(), bench.entity);
}

#[test]
fn too_many_sums_cost_the_oldest_days_and_never_a_part_of_one() {
    let today: Day = "2026-11-23".parse().unwrap();
    let mut costs = Costs::default();
    for (ago, agents) in [(2, 10), (1, COST_SUMS - 8), (0, 5)] {
        costs
            .sums
            .extend((0..agents).map(|number| ((today.before(ago), agent(number as u128)), Sum::default())));
    }
    let past = costs.sums_past_limit();
    assert_eq!((past.len(), past[0].0, past[9].0), (10, today.before(2), today.before(2)));
    costs.sums.insert((today.before(3), agent(1)), Sum::default());
    assert_eq!(costs.sums_past_limit().len(), 11);
    costs.sums.retain(|(day, _), _| *day >= today.before(1));
    assert!(costs.sums_past_limit().is_empty());
    // Today is whole too, however much of it there is.
    costs.sums.extend((0..=COST_SUMS).map(|number| ((today, agent(number as u128)), Sum::default())));
    assert_eq!(costs.sums_past_limit().len(), COST_SUMS - 8);
    costs.sums.retain(|(day, _), _| *day == today);
    assert!(costs.sums_past_limit().is_empty());
}

proptest! {
    /// Sums are what was reported, whatever was and whenever.
    #[test]
    fn any_history_adds_up(reports in prop::collection::vec((0_u128..4, 0_u32..2_000_000, 0_u32..40), 1..60)) {
        let mut bench = bench();
        for (who, micros, hours) in &reports {
            bench.advance(Duration::from_secs(u64::from(*hours) * 3600));
            note(&mut bench, report(agent(*who), f64::from(*micros) / 1e6));
        }
        prop_assert_eq!(&bench.restored(), &bench.entity);
        let Sums { all, days, agents } = sums(&mut bench, Wanted::default());
        let told: u64 = reports.iter().map(|(_, micros, _)| u64::from(*micros)).sum();
        let micros = |sums: Vec<&Sum>| sums.iter().map(|sum| sum.cost_micros).sum::<u64>();
        prop_assert_eq!(all.cost_micros, told);
        prop_assert_eq!(micros(days.iter().map(|(_, sum)| sum).collect()), told);
        prop_assert_eq!(micros(agents.iter().map(|(_, sum)| sum).collect()), told);
    }
}
