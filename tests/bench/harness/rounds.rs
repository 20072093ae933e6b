//! Rounds: every contender in turn, the limit probes first and last.

use std::time::Duration;

use anyhow::{Context, Result};

use super::contender::{Contender, Metered, Pace, Plan, Role};
use super::machine::Weather;
use super::meter::Reading;
use super::process;
use super::report::{Case, Latency, Measured, Row};
use crate::options::Options;

/// A round whose two limit probes differ by more than this is run again.
const CALM: f64 = 0.30;
/// How often.
const AGAIN: u32 = 3;

/// The load of a case.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub name: String,
    pub operation: String,
    pub in_flight: usize,
    /// Also measure latencies, by an open load at half of each contender's ceiling.
    pub latencies: bool,
    /// Of the rounds themselves.
    pub pace: Pace,
}

impl Load {
    pub(crate) fn new(operation: &str, in_flight: usize) -> Self {
        let name = format!("{in_flight} in flight");
        Self { name, operation: operation.to_owned(), in_flight, latencies: false, pace: Pace::Closed }
    }

    #[must_use]
    pub(crate) fn with_latencies(self) -> Self {
        Self { latencies: true, ..self }
    }

    /// Operations begin at this rate a second; each round measures latencies.
    #[must_use]
    pub(crate) fn at_rate(self, rate: f64) -> Self {
        Self { pace: Pace::Open(rate), ..self }
    }
}

/// Runs all contenders in rounds, and tells what came of it.
///
/// # Errors
/// The first contender that fails, by its name.
pub(crate) async fn run(
    load: &Load,
    contenders: &mut [Box<dyn Contender>],
    options: &Options,
) -> Result<Case> {
    run_each(load, contenders.iter_mut().map(Box::as_mut).collect(), options).await
}

/// As [`run`], with contenders that are still needed afterwards.
///
/// # Errors
/// The first contender that fails, by its name.
pub(crate) async fn run_each(
    load: &Load,
    mut contenders: Vec<&mut (dyn Contender + 'static)>,
    options: &Options,
) -> Result<Case> {
    let wanted = |label: &str| options.only.as_ref().is_none_or(|only| only == label);
    contenders.retain(|contender| wanted(contender.card().label));
    let contenders: &mut [_] = &mut contenders;
    for contender in contenders.iter_mut() {
        let label = contender.card().label;
        contender.prepare(load.in_flight).await.with_context(|| format!("{label} cannot be made ready"))?;
    }
    let mut case = Case {
        name: load.name.clone(),
        operation: load.operation.clone(),
        rows: contenders.iter().map(|contender| Row::of(&**contender)).collect(),
        weather: Vec::new(),
        discarded: 0,
    };
    let plan = Plan { in_flight: load.in_flight, time: options.slot, pace: load.pace };
    for round in 0..options.rounds {
        let measured = calm_round(&plan, contenders, round, options, &mut case).await?;
        for (row, measured) in case.rows.iter_mut().zip(measured) {
            row.rounds.push(measured);
        }
    }
    for (contender, row) in contenders.iter_mut().zip(&mut case.rows) {
        count_flushes(&mut **contender, row, &plan).await?;
        row.latency = row.median_latency();
        if load.latencies {
            row.latency = latencies(&mut **contender, row, &plan).await?;
        }
    }
    Ok(case)
}

async fn calm_round(
    plan: &Plan,
    contenders: &mut [&mut (dyn Contender + 'static)],
    round: u32,
    options: &Options,
    case: &mut Case,
) -> Result<Vec<Measured>> {
    let mut tries = 0;
    loop {
        case.weather.push(Weather::look(&options.folder)?);
        let (measured, spread) = one_round(plan, contenders, round).await?;
        if spread <= CALM || tries == AGAIN {
            return Ok(measured);
        }
        case.weather.pop();
        tries += 1;
        case.discarded += 1;
        eprintln!("    round {round}: the limit probes differ by {:.0} %, again", spread * 100.0);
    }
}

/// Each contender's slot, and by how much the limit probes' first and last slots differ at most.
async fn one_round(
    plan: &Plan,
    contenders: &mut [&mut (dyn Contender + 'static)],
    round: u32,
) -> Result<(Vec<Measured>, f64)> {
    let mut measured: Vec<Option<Measured>> = vec![None; contenders.len()];
    let mut spread: f64 = 0.0;
    for index in order(&roles(contenders), round) {
        let slot = slot(&mut *contenders[index], plan).await?;
        measured[index] = Some(match measured[index] {
            None => slot,
            Some(first) => {
                spread = spread.max((first.rate - slot.rate).abs() / first.rate.max(slot.rate));
                mean(&first, &slot)
            }
        });
    }
    Ok((measured.into_iter().flatten().collect(), spread))
}

fn roles(contenders: &[&mut (dyn Contender + 'static)]) -> Vec<Role> {
    contenders.iter().map(|contender| contender.card().role).collect()
}

/// Limits, the others beginning with another one each round, limits again.
fn order(roles: &[Role], round: u32) -> Vec<usize> {
    let (limits, mut others): (Vec<usize>, Vec<usize>) =
        (0..roles.len()).partition(|&index| roles[index] == Role::Limit);
    if !others.is_empty() {
        let turn = round as usize % others.len();
        others.rotate_left(turn);
    }
    [limits.clone(), others, limits].concat()
}

async fn slot(contender: &mut dyn Contender, plan: &Plan) -> Result<Measured> {
    let label = contender.card().label;
    let before = Reading::take(contender)?;
    let work = contender.work(plan).await.with_context(|| format!("{label} failed"))?;
    let used = Reading::take(contender)?.since(&before).per(work.operations);
    let mut measured = Measured::new(work.operations as f64 / work.elapsed.as_secs_f64(), &used);
    if let (Pace::Open(rate), Some(latency)) = (plan.pace, &work.latency) {
        measured.latency = Some(Latency::of(rate, latency));
    }
    Ok(measured)
}

fn mean(one: &Measured, other: &Measured) -> Measured {
    let both =
        |one: Option<f64>, other: Option<f64>| one.zip(other).map(|(one, other)| f64::midpoint(one, other));
    Measured {
        rate: f64::midpoint(one.rate, other.rate),
        cpu_us: f64::midpoint(one.cpu_us, other.cpu_us),
        bytes: f64::midpoint(one.bytes, other.bytes),
        flushes: both(one.flushes, other.flushes),
        allocations: both(one.allocations, other.allocations),
        redis_calls: both(one.redis_calls, other.redis_calls),
        latency: one.latency,
    }
}

/// Servers that do not count their flushes are watched by `strace`, in a slot of its own whose rate means
/// nothing.
async fn count_flushes(contender: &mut dyn Contender, row: &mut Row, plan: &Plan) -> Result<()> {
    let Metered::Tree(root) = contender.card().metered else { return Ok(()) };
    if contender.flushes().is_some() {
        return Ok(());
    }
    let Some(watch) = process::FlushWatch::start(root).await? else { return Ok(()) };
    let work = contender.work(&Plan { time: Duration::from_secs(1), ..*plan }).await?;
    let flushes = watch.stop().await? as f64 / work.operations.max(1) as f64;
    for round in &mut row.rounds {
        round.flushes = Some(flushes);
    }
    Ok(())
}

async fn latencies(contender: &mut dyn Contender, row: &Row, plan: &Plan) -> Result<Option<Latency>> {
    let Some(ceiling) = super::stats::median(&row.rates()) else { return Ok(None) };
    let rate = ceiling / 2.0;
    let work = contender.work(&Plan { pace: Pace::Open(rate), ..*plan }).await?;
    Ok(work.latency.map(|latency| Latency::of(rate, &latency)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_come_first_and_last_and_the_others_rotate() {
        let roles = [Role::Limit, Role::Peer, Role::Skein];
        assert_eq!(order(&roles, 0), [0, 1, 2, 0]);
        assert_eq!(order(&roles, 1), [0, 2, 1, 0]);
        assert_eq!(order(&roles, 2), [0, 1, 2, 0]);
    }
}
