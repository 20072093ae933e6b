//! The vectors of learnings in memory, for a search by meaning looks at all of them: read row by row from the file they
//! would take five times as long.
//!
//! There is a copy of each memory that is searched, and a search brings it up to what it sees of the table itself, by
//! the number that each change of the table gets. So nobody has to tell it of anything, and it can be let go at any
//! time.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use rusqlite::{Connection, Row, params};
use skein_shared::id::EntityKey;
use skein_shared::memory::Vector;
use tokio::time::Instant;

use super::search::Sought;

/// How long a copy is kept that nobody looks at.
const IDLE: Duration = Duration::from_secs(600);

/// Which making of the table it is. Numbers of changes rise within one.
pub(super) fn generation(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// The table is made anew, or its rows are: copies have to be as well.
pub(super) fn begin_generation(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "user_version", generation(connection)?.wrapping_add(1))
}

/// The same where another file takes the place of one that is damaged, perhaps where its generation stood: so often
/// none was made anew.
pub(super) fn take_over_generation(connection: &Connection, damaged: &Connection) -> rusqlite::Result<()> {
    let before = generation(damaged).unwrap_or(1 << 30);
    connection.pragma_update(None, "user_version", before.wrapping_add(1))
}

/// The copies.
#[derive(Default)]
pub(super) struct Copies {
    all: Mutex<HashMap<EntityKey, Copied>>,
}

struct Copied {
    vectors: Arc<RwLock<Vectors>>,
    used: Instant,
}

impl Copies {
    /// The vectors of a memory, as new as what the connection sees or newer.
    pub(super) fn of(
        &self,
        connection: &Connection,
        key: &EntityKey,
        entity: i64,
    ) -> rusqlite::Result<Arc<RwLock<Vectors>>> {
        let vectors = {
            let mut all = self.lock();
            let copied = all.entry(key.clone()).or_insert_with(Copied::new);
            copied.used = Instant::now();
            Arc::clone(&copied.vectors)
        };
        let seen = State::of(connection, entity)?;
        if vectors.read().unwrap_or_else(PoisonError::into_inner).state < seen {
            vectors.write().unwrap_or_else(PoisonError::into_inner).catch_up(connection, entity, seen)?;
        }
        Ok(vectors)
    }

    /// Lets go of the copies that nobody has looked at for a while.
    pub(super) fn forget_idle(&self) {
        self.lock().retain(|_, copied| copied.used.elapsed() < IDLE);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<EntityKey, Copied>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Copied {
    fn new() -> Self {
        Self { vectors: Arc::default(), used: Instant::now() }
    }
}

/// How far a copy, or a view of the table, has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    generation: i64,
    change: i64,
}

impl State {
    fn of(connection: &Connection, entity: i64) -> rusqlite::Result<Self> {
        let change = "SELECT coalesce(max(change), 0) FROM vector WHERE entity = ?1";
        let change = connection.prepare_cached(change)?.query_row([entity], |row| row.get(0))?;
        Ok(Self { generation: generation(connection)?, change })
    }
}

/// One memory's vectors.
#[derive(Default)]
pub(super) struct Vectors {
    state: State,
    vectors: Vec<Known>,
    /// Where each learning's vector is.
    places: HashMap<Arc<str>, usize>,
    /// What many have in common, by the numbers that stand for it.
    groups: Vec<Group>,
    numbers: HashMap<Group, usize>,
}

struct Known {
    memory: Arc<str>,
    group: usize,
    scale: f32,
    codes: Box<[u8]>,
}

/// Whose vectors they are, and by what they were made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Group {
    model: String,
    scope: Option<String>,
    agent: Option<String>,
    source: Option<String>,
}

impl Vectors {
    /// Takes in what the connection sees and the copy does not have. Another search may have been here before.
    fn catch_up(&mut self, connection: &Connection, entity: i64, seen: State) -> rusqlite::Result<()> {
        if self.state.generation < seen.generation {
            *self = Self::default();
        } else if self.state >= seen {
            return Ok(());
        }
        let sql = "SELECT memory, model, scope, agent, source, scale, codes FROM vector
                   WHERE entity = ?1 AND change > ?2 ORDER BY change";
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query(params![entity, self.state.change])?;
        while let Some(row) = rows.next()? {
            self.take_in(row)?;
        }
        self.state = seen;
        Ok(())
    }

    fn take_in(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        let memory: Arc<str> = row.get(0)?;
        let Some(codes) = row.get_ref(6)?.as_blob_or_null()? else {
            self.remove(&memory);
            return Ok(());
        };
        let group = Group { model: row.get(1)?, scope: row.get(2)?, agent: row.get(3)?, source: row.get(4)? };
        let group = *self.numbers.entry(group).or_insert_with_key(|group| {
            self.groups.push(group.clone());
            self.groups.len() - 1
        });
        let known = Known { memory: Arc::clone(&memory), group, scale: row.get(5)?, codes: codes.into() };
        match self.places.get(&memory) {
            Some(place) => self.vectors[*place] = known,
            None => {
                self.places.insert(memory, self.vectors.len());
                self.vectors.push(known);
            }
        }
        Ok(())
    }

    fn remove(&mut self, memory: &str) {
        let Some(place) = self.places.remove(memory) else { return };
        self.vectors.swap_remove(place);
        if let Some(moved) = self.vectors.get(place) {
            self.places.insert(Arc::clone(&moved.memory), place);
        }
    }

    /// The documents of the learnings that are nearest to what is sought, so many at most, the nearest first.
    pub(super) fn nearest(
        &self,
        (model, vector): &(String, &Vector),
        sought: &Sought,
        most: usize,
    ) -> Vec<(String, f32)> {
        let seen: Vec<bool> = self.groups.iter().map(|group| group.is_seen(model, sought)).collect();
        let mut nearest: BinaryHeap<Near<'_>> = BinaryHeap::with_capacity(most + 1);
        for known in self.vectors.iter().filter(|known| seen[known.group]) {
            let Some(similarity) = vector.cosine(known.scale, &known.codes) else { continue };
            let near = Near { similarity, memory: &known.memory };
            if nearest.len() == most && nearest.peek().is_some_and(|last| near >= *last) {
                continue;
            }
            nearest.push(near);
            if nearest.len() > most {
                nearest.pop();
            }
        }
        let nearest = nearest.into_sorted_vec();
        nearest.into_iter().map(|near| (near.memory.to_owned(), near.similarity)).collect()
    }

    /// How near one learning is, whoever may see it.
    pub(super) fn similarity(&self, (model, vector): &(String, &Vector), memory: &str) -> Option<f32> {
        let known = &self.vectors[*self.places.get(memory)?];
        (self.groups[known.group].model == *model).then(|| vector.cosine(known.scale, &known.codes)).flatten()
    }
}

impl Group {
    fn is_seen(&self, model: &str, sought: &Sought) -> bool {
        let [scope, agent, source] = [&self.scope, &self.agent, &self.source].map(Option::as_deref);
        self.model == model && sought.may_find(scope, agent, source)
    }
}

/// How near a learning is. The order of those that are equally near is that of their ids.
struct Near<'a> {
    similarity: f32,
    memory: &'a str,
}

impl Ord for Near<'_> {
    /// The greatest is the one that leaves first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.similarity.total_cmp(&self.similarity).then_with(|| self.memory.cmp(other.memory))
    }
}

impl PartialOrd for Near<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Near<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Near<'_> {}

#[cfg(test)]
mod tests {
    use skein_shared::id::{Kind, Name};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_copy_that_nobody_looks_at_is_let_go() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(include_str!("schema.sql")).unwrap();
        let key = EntityKey::of(Kind::Memory, &"default".parse::<Name>().unwrap());
        let copies = Copies::default();
        for _ in 0..2 {
            copies.of(&connection, &key, 1).unwrap();
            tokio::time::advance(IDLE - Duration::from_secs(1)).await;
            copies.forget_idle();
            assert_eq!(copies.lock().len(), 1);
        }
        tokio::time::advance(Duration::from_secs(2)).await;
        copies.forget_idle();
        assert!(copies.lock().is_empty());
    }
}
