//! Whether an agent goes round in circles, by its last calls alone (spec: Agent Swarm 5.3).

/// So many calls are looked at, the one to be judged among them.
pub(crate) const WINDOW: usize = 30;
/// So often the same call with the same arguments is warned of, and so often it is not made any more.
const SAME: (usize, usize) = (8, 15);
/// The same for two calls in turns, counted together.
const TURNS: (usize, usize) = (6, 12);
/// Two calls are in turns that have this share of so many last calls, percent.
const SHARE: usize = 80;
const RECENT: usize = 12;

/// What is said to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    /// It is made, and its agent is told this.
    Warn(String),
    /// It is not made, for this reason.
    Block(String),
}

/// Judges a call by those that were made before it, the oldest first. Equal numbers are equal calls.
pub(crate) fn judge(before: &[u64], call: u64) -> Verdict {
    let start = before.len().saturating_sub(WINDOW - 1);
    let calls: Vec<u64> = before.iter().skip(start).copied().chain([call]).collect();
    let (same, turns) = (count(&calls, call), in_turns(&calls));
    let last = calls.len();
    if same >= SAME.1 {
        let problem = format!("it would be the {same}th time with the same arguments among {last} calls");
        return Verdict::Block(blocked(&problem));
    }
    if turns >= TURNS.1 {
        let problem = format!("it and one other call, in turns, would be {turns} of {last} calls");
        return Verdict::Block(blocked(&problem));
    }
    if same >= SAME.0 {
        let problem = format!("you have made this very call {same} times among your last {last}");
        return Verdict::Warn(warned(&problem, SAME.1));
    }
    if turns >= TURNS.0 {
        let problem =
            format!("you make this call and one other in turns, {turns} times among your last {last}");
        return Verdict::Warn(warned(&problem, TURNS.1));
    }
    Verdict::Pass
}

fn blocked(problem: &str) -> String {
    format!(
        "This call was not made: {problem}, so you go round in circles. Do something else: look at what the earlier \
         calls came to, try another way, or report what is in your way and end."
    )
}

fn warned(problem: &str, most: usize) -> String {
    format!(
        "It looks as if you go round in circles: {problem}. Try another way: with {most} of them no more are made."
    )
}

fn count(calls: &[u64], call: u64) -> usize {
    calls.iter().filter(|other| **other == call).count()
}

/// How many calls are of the newest one and another with which it takes turns; 0 if it takes none.
fn in_turns(calls: &[u64]) -> usize {
    let recent = &calls[calls.len().saturating_sub(RECENT)..];
    let Some(newest) = recent.last() else { return 0 };
    let others = recent.iter().filter(|call| *call != newest);
    let Some(other) = others.max_by_key(|call| count(recent, **call)) else { return 0 };
    let is_of_pair = |call: &&u64| *call == newest || *call == other;
    let pair: Vec<&u64> = recent.iter().filter(is_of_pair).collect();
    let changes = pair.windows(2).filter(|two| two[0] != two[1]).count();
    if pair.len() * 100 < recent.len() * SHARE || changes * 100 < (pair.len() - 1) * SHARE {
        return 0;
    }
    calls.iter().filter(is_of_pair).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How the last of these calls is judged: a letter each, those that were blocked left out of what came before.
    fn last(calls: &str) -> &'static str {
        let (mut before, mut verdict) = (Vec::new(), Verdict::Pass);
        for call in calls.bytes().map(u64::from) {
            verdict = judge(&before, call);
            if !matches!(verdict, Verdict::Block(_)) {
                before.push(call);
            }
        }
        match verdict {
            Verdict::Pass => "pass",
            Verdict::Warn(_) => "warn",
            Verdict::Block(_) => "block",
        }
    }

    #[test]
    fn who_goes_round_in_circles_is_warned_and_then_stopped() {
        let others: String = ('0'..='9').chain('a'..='t').collect();
        for (calls, wanted) in [
            ("A".repeat(7), "pass"),
            ("A".repeat(8), "warn"),
            ("A".repeat(14), "warn"),
            ("A".repeat(15), "block"),
            ("A".repeat(40), "block"),
            // Whatever lies between them, as long as it is in the window.
            (format!("{}0123456789A", "A".repeat(7)), "warn"),
            (format!("{}{}A", "A".repeat(14), &others[..15]), "block"),
            (format!("{}{}A", "A".repeat(14), &others[..16]), "warn"),
            (format!("{}{others}A", "A".repeat(14)), "pass"),
            (format!("{}B", "A".repeat(40)), "pass"),
            // In turns.
            ("ABABA".to_owned(), "pass"),
            ("ABABAB".to_owned(), "warn"),
            ("ABABABABABA".to_owned(), "warn"),
            ("ABABABABABAB".to_owned(), "block"),
            ("ABABCABABABABA".to_owned(), "block"),
            ("AABBAABB".to_owned(), "pass"),
            ("ABCABCABCABC".to_owned(), "pass"),
            ("ABABAB01AB23AB".to_owned(), "pass"),
            // The way out of it is another call.
            ("ABABABABABABC".to_owned(), "pass"),
            (others.clone(), "pass"),
            ("A".to_owned(), "pass"),
        ] {
            assert_eq!(last(&calls), wanted, "{calls}");
        }
    }
}
