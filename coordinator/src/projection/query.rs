//! Lists: filters on the documents' bodies, turned into one statement.
//!
//! Every value is bound as a parameter. Of a caller's text only field paths stand in the statement, and
//! [`Path`] admits nothing but names and dots.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use rusqlite::types::Value as Bound;
use rusqlite::{Connection, params_from_iter};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use skein_shared::code::{Code, Refusal};
use skein_shared::id::{EntityKey, Kind, Name};

use super::tables::{COLUMNS, bound, count, json};

/// Most documents that one list gives. Who wants more asks for what comes [`after`](Query::after) them.
pub const LIMIT: usize = 1000;

/// Where a value stands in a body: names with dots between them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Path(String);

impl TryFrom<String> for Path {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        Self::parse(&text)
    }
}

impl From<Path> for String {
    fn from(path: Path) -> String {
        path.0
    }
}

impl Path {
    /// Reads a path such as `status` or `filter.source`.
    ///
    /// # Errors
    /// `invalid_argument` for anything but up to four names of letters, digits and underscores.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let name = |name: &str| {
            name.starts_with(|first: char| first.is_ascii_alphabetic())
                && name.len() <= 64
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        if text.split('.').count() <= 4 && text.split('.').all(name) {
            return Ok(Self(text.to_owned()));
        }
        let shown: String = text.chars().take(60).collect();
        Err(Refusal::new(
            Code::InvalidArgument,
            format!(
                "`{shown}` is not a field; use names of letters, digits and underscores with dots between them"
            ),
        ))
    }

    /// The value there, or null.
    fn of<'a>(&self, body: &'a Value) -> &'a Value {
        self.0.split('.').fold(body, |value, name| &value[name])
    }

    /// The column, for a field that has one.
    fn sql(&self) -> String {
        match COLUMNS.iter().find(|(field, _)| *field == self.0) {
            Some((_, column)) => (*column).to_owned(),
            None => format!("json_extract(body, '$.{}')", self.0),
        }
    }
}

/// A condition on one field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Filter {
    pub path: Path,
    pub test: Test,
}

/// `true` and `false` count as 1 and 0. A field that is missing or null meets `Eq` null and `Missing` alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Test {
    Eq(Value),
    /// Anything else, a missing field too.
    Not(Value),
    In(Vec<Value>),
    /// A part of the text; ASCII letters match in either case.
    Like(String),
    AtLeast(Value),
    Below(Value),
    /// The field is an array with this element.
    Has(Value),
    Missing,
    Present,
}

impl Filter {
    /// A condition on a field.
    ///
    /// # Errors
    /// When the path is none.
    pub fn new(path: &str, test: Test) -> Result<Self, Refusal> {
        Ok(Self { path: Path::parse(path)?, test })
    }
}

/// A sort key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub path: Path,
    pub descending: bool,
}

impl Order {
    /// The least first.
    ///
    /// # Errors
    /// `invalid_argument`, as [`Path::parse`] has it.
    pub fn ascending(path: &str) -> Result<Self, Refusal> {
        Ok(Self { path: Path::parse(path)?, descending: false })
    }

    /// The greatest first.
    ///
    /// # Errors
    /// `invalid_argument`, as [`Path::parse`] has it.
    pub fn descending(path: &str) -> Result<Self, Refusal> {
        Ok(Self { path: Path::parse(path)?, descending: true })
    }
}

/// A text that stands in any of the fields; ASCII letters match in either case, and no character is special.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Search {
    pub paths: Vec<Path>,
    pub text: String,
}

/// What documents are counted by: a text in a field, or its first letters. One that is missing counts as empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub by: Path,
    pub letters: Option<u32>,
}

/// Which documents, in which order. Equal ones come by id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Query {
    pub swarm: Name,
    pub kind: Kind,
    pub document_type: String,
    /// Of this entity alone.
    pub entity: Option<EntityKey>,
    pub live: Option<bool>,
    pub filters: Vec<Filter>,
    /// Any of these; empty for no condition.
    pub tags: Vec<String>,
    /// None of these.
    #[serde(default)]
    pub untagged: Vec<String>,
    pub search: Option<Search>,
    pub order: Vec<Order>,
    /// Only what comes after a document that has these values in the fields of `order`; empty for all. No document is
    /// left out or comes twice if the order tells each from each.
    pub after: Vec<Value>,
    pub limit: usize,
    pub offset: usize,
    /// Fields that are left out of each document, since they may be long and the list does not show them. None of
    /// `order`, for what lists of several files are put together by.
    #[serde(default)]
    pub without: Vec<Path>,
}

impl Query {
    /// All documents of a type, by id.
    pub fn new(swarm: &Name, kind: Kind, document_type: impl Into<String>) -> Self {
        Self {
            swarm: swarm.clone(),
            kind,
            document_type: document_type.into(),
            entity: None,
            live: None,
            filters: Vec::new(),
            tags: Vec::new(),
            untagged: Vec::new(),
            search: None,
            order: Vec::new(),
            after: Vec::new(),
            limit: LIMIT,
            offset: 0,
            without: Vec::new(),
        }
    }

    /// Where a document stands in the order: what comes behind it comes [`after`](Query::after) this.
    pub fn place(&self, document: &Value) -> Vec<Value> {
        self.order.iter().map(|order| order.path.of(document).clone()).collect()
    }

    pub(super) fn list(&self, connection: &Connection) -> rusqlite::Result<Vec<Value>> {
        let sql = self.list_statement();
        let mut statement = connection.prepare_cached(&sql.text)?;
        let rows = statement.query_map(params_from_iter(sql.values), |row| json(row, 0))?;
        rows.collect()
    }

    pub(super) fn count(&self, connection: &Connection) -> rusqlite::Result<u64> {
        let mut sql = Statement::new("SELECT count(*) FROM document WHERE ");
        self.conditions(&mut sql);
        let mut statement = connection.prepare_cached(&sql.text)?;
        let counted: i64 = statement.query_row(params_from_iter(sql.values), |row| row.get(0))?;
        Ok(counted.unsigned_abs())
    }

    pub(super) fn tally(
        &self,
        connection: &Connection,
        by: &Tally,
    ) -> rusqlite::Result<BTreeMap<String, u64>> {
        let sql = self.tally_statement(by);
        let mut statement = connection.prepare_cached(&sql.text)?;
        let rows = statement.query_map(params_from_iter(sql.values), |row| {
            let counted: i64 = row.get(1)?;
            Ok((row.get::<_, Option<String>>(0)?.unwrap_or_default(), counted.unsigned_abs()))
        })?;
        rows.collect()
    }

    pub(super) fn tally_statement(&self, by: &Tally) -> Statement {
        let field = by.by.sql();
        let mut sql = Statement::new("SELECT ");
        match by.letters {
            None => sql.push(&field),
            Some(letters) => sql.push(&format!("substr({field}, 1, {letters})")),
        }
        sql.push(", count(*) FROM document WHERE ");
        self.conditions(&mut sql);
        sql.push(&format!(" GROUP BY 1 ORDER BY 1 DESC LIMIT {LIMIT}"));
        sql
    }

    pub(super) fn list_statement(&self) -> Statement {
        let mut sql = Statement::new("SELECT ");
        sql.body(&self.without);
        sql.push(" FROM document WHERE ");
        self.conditions(&mut sql);
        sql.push(" ORDER BY ");
        for order in &self.order {
            sql.push(&order.path.sql());
            sql.push(if order.descending { " DESC, " } else { ", " });
        }
        // Within one type the order of the keys is that of the ids.
        // By the limit SQLite chooses the index: in the text, for it prepares anew for each value that is bound.
        sql.push(&format!("document, entity LIMIT {} OFFSET ", self.limit.min(LIMIT)));
        sql.bind(Bound::Integer(count(self.offset)));
        sql
    }

    fn conditions(&self, sql: &mut Statement) {
        sql.of_type(&self.swarm, &self.document_type, self.kind);
        if let Some(entity) = &self.entity {
            sql.push(" AND entity = (SELECT number FROM entity WHERE key = ");
            sql.bind(Bound::Text(entity.to_string()));
            sql.push(")");
        }
        if let Some(live) = self.live {
            sql.push(if live { " AND live = 1" } else { " AND live = 0" });
        }
        sql.filters(&self.filters);
        if !self.after.is_empty() {
            sql.after(&self.order, &self.after);
        }
        if !self.tags.is_empty() {
            sql.push(" AND row IN (SELECT tag.row FROM tag WHERE tag IN ");
            sql.bind_all(self.tags.iter().map(|tag| Bound::Text(tag.clone())));
            sql.push(")");
        }
        if !self.untagged.is_empty() {
            // Looked at row by row: a list is short, and those that have the tag may be many.
            sql.push(" AND NOT EXISTS (SELECT 1 FROM tag WHERE tag IN ");
            sql.bind_all(self.untagged.iter().map(|tag| Bound::Text(tag.clone())));
            sql.push(" AND tag.row = document.row)");
        }
        if let Some(search) = &self.search {
            sql.push(" AND (0");
            for path in &search.paths {
                sql.push(" OR ");
                sql.part_of(path, &search.text);
            }
            sql.push(")");
        }
    }
}

/// Puts lists of the same query together that come from different files, each in the query's order.
pub fn merge(query: &Query, parts: Vec<Vec<Value>>) -> Vec<Value> {
    let mut rows: Vec<Value> = parts.into_iter().flatten().collect();
    // Stable, so that equal ones stay as their files had them.
    rows.sort_by(|a, b| {
        let orders = query.order.iter().map(|order| {
            let compared = compare(order.path.of(a), order.path.of(b));
            if order.descending { compared.reverse() } else { compared }
        });
        orders.fold(Ordering::Equal, Ordering::then)
    });
    rows.truncate(query.limit.min(LIMIT));
    rows
}

/// As SQLite orders them: nothing, then numbers, then texts.
fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::String(a), Value::String(b)) => a.cmp(b),
        _ => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            _ => class(a).cmp(&class(b)),
        },
    }
}

fn class(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(_) | Value::Number(_) => 1,
        _ => 2,
    }
}

/// A statement being written, with its parameters.
pub(super) struct Statement {
    pub(super) text: String,
    pub(super) values: Vec<Bound>,
}

impl Statement {
    pub(super) fn new(text: &str) -> Self {
        Self { text: text.to_owned(), values: Vec::new() }
    }

    pub(super) fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn body(&mut self, without: &[Path]) {
        if without.is_empty() {
            return self.push("body");
        }
        self.push("json_remove(body");
        for path in without {
            self.push(&format!(", '$.{}'", path.0));
        }
        self.push(")");
    }

    pub(super) fn bind(&mut self, value: Bound) {
        self.values.push(value);
        self.text.push('?');
    }

    fn bind_all(&mut self, values: impl Iterator<Item = Bound>) {
        self.push("(");
        for (place, value) in values.enumerate() {
            if place > 0 {
                self.push(", ");
            }
            self.bind(value);
        }
        self.push(")");
    }

    /// The swarm's documents of a type, from entities of one kind.
    pub(super) fn of_type(&mut self, swarm: &Name, document_type: &str, kind: Kind) {
        self.push("collection = (SELECT number FROM collection WHERE swarm = ");
        self.bind(Bound::Text(swarm.to_string()));
        self.push(" AND type = ");
        self.bind(Bound::Text(document_type.to_owned()));
        self.push(" AND kind = ");
        self.bind(Bound::Text(kind.to_string()));
        self.push(")");
    }

    pub(super) fn filters(&mut self, filters: &[Filter]) {
        for filter in filters {
            self.push(" AND ");
            self.filter(filter);
        }
    }

    /// Behind a place: as there in the first fields of the order, and behind it in the next one.
    fn after(&mut self, order: &[Order], place: &[Value]) {
        self.push(" AND (0");
        for (same, (next, value)) in order.iter().zip(place).enumerate() {
            self.push(" OR (");
            for (order, value) in order.iter().zip(place).take(same) {
                self.compare(&order.path, " IS ", Some(value));
                self.push(" AND ");
            }
            self.behind(next, value);
            self.push(")");
        }
        self.push(")");
    }

    /// Nothing comes before everything else, and descending after it.
    fn behind(&mut self, order: &Order, value: &Value) {
        match (order.descending, value.is_null()) {
            (false, true) => self.compare(&order.path, " IS NOT NULL", None),
            (false, false) => self.compare(&order.path, " > ", Some(value)),
            (true, true) => self.push("0"),
            (true, false) => {
                self.push("(");
                self.compare(&order.path, " < ", Some(value));
                self.push(" OR ");
                self.compare(&order.path, " IS NULL", None);
                self.push(")");
            }
        }
    }

    fn filter(&mut self, Filter { path, test }: &Filter) {
        match test {
            Test::Eq(Value::Null) | Test::Missing => self.compare(path, " IS NULL", None),
            Test::Not(Value::Null) | Test::Present => self.compare(path, " IS NOT NULL", None),
            Test::Eq(value) => self.compare(path, " = ", Some(value)),
            Test::Not(value) => self.compare(path, " IS NOT ", Some(value)),
            Test::AtLeast(value) => self.compare(path, " >= ", Some(value)),
            Test::Below(value) => self.compare(path, " < ", Some(value)),
            Test::In(values) => {
                self.compare(path, " IN ", None);
                self.bind_all(values.iter().cloned().map(bound));
            }
            Test::Like(part) => self.part_of(path, part),
            Test::Has(value) => {
                self.push(&format!("EXISTS (SELECT 1 FROM json_each(body, '$.{}') WHERE value = ", path.0));
                self.bind(bound(value.clone()));
                self.push(")");
            }
        }
    }

    fn compare(&mut self, path: &Path, operator: &str, value: Option<&Value>) {
        self.push(&path.sql());
        self.push(operator);
        if let Some(value) = value {
            self.bind(bound(value.clone()));
        }
    }

    /// `instr` knows no special characters, so nothing needs escaping.
    fn part_of(&mut self, path: &Path, part: &str) {
        self.push(&format!("instr(lower({}), ", path.sql()));
        self.bind(Bound::Text(part.to_ascii_lowercase()));
        self.push(") > 0");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parts_of_a_list_become_one_in_its_order() {
        let mut query = Query::new(&Name::parse("default").unwrap(), Kind::Agent, "instance");
        query.order = vec![Order::descending("at.started").unwrap()];
        query.limit = 4;
        let row = |id: u32, at: Option<&str>| json!({"id": id, "at": {"started": at}});
        let parts = vec![
            vec![row(1, Some("2026-03")), row(2, Some("2026-01")), row(3, None)],
            vec![row(4, Some("2026-02")), row(5, Some("2025-12"))],
        ];
        let ids: Vec<Value> = merge(&query, parts).into_iter().map(|row| row["id"].clone()).collect();
        assert_eq!(ids, [1, 4, 2, 5]);
        let sent = serde_json::to_vec(&query).unwrap();
        assert_eq!(serde_json::from_slice::<Query>(&sent).unwrap(), query);
    }

    #[test]
    fn only_names_are_paths() {
        for good in ["status", "lastUpdatedAt", "filter.source", "a_1.b.c.d"] {
            assert!(Path::parse(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "a.", "a..b", "a'b", "a b", "a.b.c.d.e", "$.a", "a[0]", "ä", "1a", "a\"", "a)--"]
        {
            assert!(Path::parse(bad).is_err(), "{bad}");
        }
    }
}
