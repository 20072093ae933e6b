//! What happened, in order: a hash over all of it, and the last of it in words.

use std::collections::VecDeque;
use std::fmt;

/// Events that are kept in words.
const LAST: usize = 200;

/// The trace of one run.
#[derive(Clone, Debug)]
pub struct Trace {
    hash: u64,
    pub events: u64,
    last: VecDeque<String>,
    /// Whether all of it is printed as it happens.
    aloud: bool,
}

impl Trace {
    pub fn new(aloud: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, events: 0, last: VecDeque::new(), aloud }
    }

    /// Takes note of an event at a time in microseconds.
    pub fn note(&mut self, at: u64, what: fmt::Arguments<'_>) {
        let line = format!("{:>11.6} {what}", at as f64 / 1e6);
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self.events += 1;
        if self.aloud {
            println!("{line}");
        }
        if self.last.len() == LAST {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    /// More for those who read along.
    pub fn detail(&self, what: fmt::Arguments<'_>) {
        if self.aloud {
            println!("            {what}");
        }
    }

    /// Equal for equal runs.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn last(&self) -> impl Iterator<Item = &String> {
        self.last.iter()
    }
}
