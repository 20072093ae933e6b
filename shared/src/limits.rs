//! Every limit on size, depth, count and time, with its reason.

use std::time::Duration;

/// Longest task text, output or call context, bytes, and the longest value of a call that its documents hold. Larger
/// things belong into files.
pub const TEXT: usize = 256 * 1024;
/// Longest value of a call, bytes. What is longer than a text is kept in chunks.
pub const RESULT: usize = 16 * 1024 * 1024;
/// Chunks of a blob, bytes; the last one may be shorter. One message between nodes and one command of a store carries
/// one of them with ease.
pub const CHUNK: usize = 512 * 1024;
/// What the blobs of one swarm may take together by default, bytes.
pub const SWARM_BLOBS: u64 = 256 * 1024 * 1024;
/// How long room may be reserved, and chunks may lie, before something keeps them.
pub const BLOB_LOOSE: Duration = Duration::from_secs(3600);
/// How much of a long value is shown at first, bytes.
pub const PREVIEW: usize = 1024;
/// Most learnings of a swarm. A search by meaning looks at each of them.
pub const LEARNINGS: usize = 100_000;
/// Longest lock key, bytes (spec: Action Llama 4.5).
pub const LOCK_KEY: usize = 2048;
/// Default time to live of a lock.
pub const LOCK_TTL: Duration = Duration::from_secs(1800);
/// Longest time to live of a lock, unless the swarm allows more.
pub const LOCK_TTL_MAX: Duration = Duration::from_secs(86_400);
/// The most that a swarm may allow.
pub const LOCK_TTL_ALLOWED: Duration = Duration::from_secs(30 * 86_400);
/// How long a failed try for a lock counts as waiting for it, for deadlock detection.
pub const LOCK_WAITING: Duration = Duration::from_secs(60);
/// Lease of a started task whose instance a runner watches.
pub const TASK_LEASE_RUNNER: Duration = Duration::from_secs(60);
/// Lease of a started task of an agent without a runner, from its last call or open wait.
pub const TASK_LEASE_AGENT: Duration = Duration::from_secs(30 * 60);
/// How long an expired task is kept for the same agent before the pool gets it.
pub const TASK_RETURN: Duration = Duration::from_secs(5 * 60);
/// After this many generations a task that keeps losing its agent goes to the lead.
pub const TASK_GENERATIONS: u32 = 3;
/// After this many generations a task that whoever takes it dies of is failed.
pub const TASK_GENERATIONS_MAX: u32 = 10;
/// A started task without a report for this long is put before the lead, though its agent lives.
pub const TASK_STALL: Duration = Duration::from_secs(30 * 60);
/// Work of the pool that could be claimed for this long, and that nobody took, is an alarm; so is work of an agent that
/// did nothing meanwhile.
pub const TASK_UNCLAIMED: Duration = Duration::from_secs(30 * 60);
/// Most words for one task that its agent has not had yet.
pub const STEERING: usize = 20;
/// Longest reason for which a task is cancelled or an offer rejected, characters.
pub const REASON: usize = 4000;
/// So many polls in a row without work mean that a worker may go (spec: Agent Swarm 3.4).
pub const EMPTY_POLLS: u32 = 2;
/// How long `poll-task` waits for work (spec: Agent Swarm 3.4).
pub const POLL: Duration = Duration::from_secs(60);
/// An offer that nobody answered returns to the pool.
pub const OFFER: Duration = Duration::from_secs(30 * 60);
/// Greatest capacity of an agent.
pub const CAPACITY_MAX: u32 = 20;
/// Most dependencies of one task.
pub const DEPENDENCIES: usize = 100;
/// Most channels of a swarm: their heads stay in memory.
pub const CHANNELS: usize = 10_000;
/// Agents that a message may mention.
pub const MENTIONS: usize = 100;
/// Most tags of one task, and the longest of them in characters.
pub const TAGS: usize = 50;
pub const TAG: usize = 100;
/// Default number of calls below one another.
pub const CALL_DEPTH: u32 = 3;
/// Default length of an agent's work queue.
pub const WORK_QUEUE: usize = 100;
/// How often a run may be run again because it asked for it, by default.
pub const RERUNS: u32 = 10;
/// Dead letters of one agent that can be replayed; the oldest beyond it can only be read.
pub const LETTERS: usize = 1000;
/// A call that nobody finished ends as an error. Waiting does not count.
pub const CALL_EXPIRY: Duration = Duration::from_secs(2 * 3600);
/// How long a finished call can be asked for in memory.
pub const CALL_KEEP: Duration = Duration::from_secs(600);
/// Default and greatest time-out of `wait_for_trigger`.
pub const WAIT: Duration = Duration::from_secs(1800);
pub const WAIT_MAX: Duration = Duration::from_secs(30 * 86_400);
/// Waiting instances of one agent: each holds memory on its runner.
pub const MAX_WAITING: usize = 100;
/// A hand-made instance that has neither waited, nor served or made a call for this long is forgotten until it comes
/// back.
pub const HAND_MADE: Duration = Duration::from_secs(7 * 86_400);
/// A call that it makes is written down as a sign of life once the last one is this old.
pub const HAND_MADE_NEWS: Duration = Duration::from_secs(86_400);
/// Longest text of `set_status`, characters.
pub const STATUS: usize = 500;
/// How long a runner may be silent before the fleet declares it lost.
pub const RUNNER_LEASE: Duration = Duration::from_secs(30);
/// How long the answer to a request is kept for its repeat.
pub const REPLY_KEEP: Duration = Duration::from_secs(15 * 60);
/// How long an effect may stay undelivered before it becomes a dead letter.
pub const EFFECT_EXPIRY: Duration = Duration::from_secs(7 * 86_400);
/// Longest channel message, characters.
pub const MESSAGE: usize = 4000;
/// Longest question to a person, and longest answer, characters: both stand in messages.
pub const QUESTION: usize = 4000;
/// Most answers to choose from, and the longest of them in characters.
pub const QUESTION_CHOICES: usize = 20;
pub const QUESTION_CHOICE: usize = 200;
/// How long a question may wait for its answer.
pub const QUESTION_EXPIRY: Duration = Duration::from_secs(30 * 86_400);
/// Most questions that wait, of one agent and of a swarm: people have to read them.
pub const QUESTIONS_OPEN_AGENT: usize = 20;
pub const QUESTIONS_OPEN: usize = 1000;
/// How long what came of a question can be read, and of how many of a swarm.
pub const QUESTION_KEEP: Duration = Duration::from_secs(7 * 86_400);
pub const QUESTIONS_KEPT: usize = 1000;
/// How long a one-time schedule that ran can be looked up.
pub const SCHEDULE_KEEP: Duration = Duration::from_secs(7 * 86_400);
/// Most reports of costs that are kept, and for how many days the sums of all are.
pub const COSTS_KEPT: usize = 10_000;
pub const COST_DAYS: u16 = 400;
/// Most sums of one agent on one day; past it whole days go, the oldest first.
pub const COST_SUMS: usize = 100_000;
/// Deepest nesting of JSON that is taken from outside.
pub const JSON_DEPTH: usize = 64;
/// Most values in JSON that is taken from outside. One of two bytes takes a hundred and more once it is read.
pub const JSON_VALUES: usize = 200_000;
/// Request bodies of webhooks, bytes, and what is written out of one (spec: Action Llama 8.1).
pub const WEBHOOK: usize = 10 * 1024 * 1024;
/// Why a run was started, or what woke it, bytes: a webhook, and what was read from it.
pub const INPUT: usize = 2 * WEBHOOK;
/// What a file tool may be given at once, bytes.
pub const FILE: usize = 4 * 1024 * 1024;
/// Request bodies of the MCP face, bytes: the longest value of a call, and what stands around it.
pub const REQUEST: usize = RESULT + FILE;
/// Request bodies of those who show who they are within the body, bytes: it is read before anybody knows them.
pub const REQUEST_UNKNOWN: usize = 1024 * 1024;
/// One answer of the MCP face, bytes: an event stands in it as a value and, escaped, as a text, behind its beginning.
pub const ANSWER: usize = 3 * INPUT + 1024 * 1024;
/// One message between a coordinator and a runner, bytes: an input or a request, and what stands around it.
pub const RUNNER_MESSAGE: usize = 32 * 1024 * 1024;
/// What one decision may write, bytes. While it is written, Redis serves nobody else.
pub const DECISION: usize = 80 * 1024 * 1024;
