//! Lists as tables: the names of the fields once, and the values of each row behind one another.
//!
//! A model pays for the names of an object's fields with every object. A tool says which field of its result is the
//! list and what its rows have; from that come the arguments by which a caller says how it wants the list, the schema
//! of either form, and the forms themselves.

use serde_json::{Map, Value, json};

use super::catalogue::Toolset;
use super::schema::{Common, any_text, list, one_of};

const FORMAT: &str = "format";
const FIELDS: &str = "fields";
/// Takes the place behind the last row of a page, and in the answer gives it.
const CURSOR: &str = "cursor";
const ROWS: &str = "rows";
const COLUMNS: &str = "columns";
/// Longest cursor, characters: it has the values of the fields that a list is sorted by.
const PLACE: usize = 1000;

/// The list in a tool's result.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// Its field.
    pub name: &'static str,
    /// What a row may have, in the order in which the columns stand.
    pub fields: &'static [&'static str],
    /// Whether it goes on where a cursor says.
    pub pages: bool,
}

/// How a caller wants a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wish {
    columns: bool,
    /// These fields alone; empty for all.
    fields: Vec<String>,
    /// The caller knows nothing of tables and pages, and the answer is to have nothing but what Agent Swarm's has.
    plain: bool,
}

impl Wish {
    /// The fields that are wanted alone; none for all.
    pub(super) fn fields(&self) -> &[String] {
        &self.fields
    }
}

impl Rows {
    /// The arguments that each tool with a list takes.
    pub fn arguments(&self, of: Toolset) -> Vec<Common> {
        let about = match is_own(of) {
            true => "columns (default): the names once; rows: an object each",
            false => "columns: the names once; rows (default): an object each",
        };
        let mut fields = list(one_of(self.fields), self.fields.len());
        fields["minItems"] = json!(1);
        let mut arguments = vec![
            Common {
                name: FORMAT,
                schema: one_of(&[ROWS, COLUMNS]),
                about: about.to_owned(),
                in_short: "Of the list",
            },
            Common {
                name: FIELDS,
                schema: fields,
                about: format!("Only these of each of `{}`", self.name),
                in_short: "Only these",
            },
        ];
        if self.pages {
            arguments.push(Common {
                name: CURSOR,
                schema: any_text(PLACE),
                about: "Of the last answer: the next page".to_owned(),
                in_short: "Next page",
            });
        }
        arguments
    }

    /// Both forms, where a result's schema has the list as an array of objects.
    pub(super) fn complete(&self, output: &mut Value) {
        let properties = &mut output["properties"];
        let objects = properties[self.name].take();
        properties[self.name] = json!({ "anyOf": [objects, {
            "type": "object",
            "properties": {
                "cols": { "type": "array", "items": { "type": "string" } },
                "rows": { "type": "array", "items": { "type": "array" } },
            },
            "required": ["cols", "rows"],
        }] });
        if self.pages && properties[CURSOR].is_null() {
            properties[CURSOR] = any_text(PLACE);
        }
    }

    /// Takes the wish out of arguments that fit the schema.
    pub(super) fn wish(&self, of: Toolset, arguments: &mut Map<String, Value>) -> Wish {
        let (format, fields) = (arguments.remove(FORMAT), arguments.remove(FIELDS));
        let pages = self.pages && arguments.contains_key(CURSOR);
        let plain = !is_own(of) && format.is_none() && fields.is_none() && !pages;
        let columns = format.map_or(is_own(of), |format| format == COLUMNS);
        let mut wanted: Vec<String> = Vec::new();
        for field in fields.iter().filter_map(Value::as_array).flatten().filter_map(Value::as_str) {
            if !wanted.iter().any(|known| known == field) {
                wanted.push(field.to_owned());
            }
        }
        Wish { columns, fields: wanted, plain }
    }

    /// Gives the list in a result the form that is wanted. A refusal has no list.
    pub(super) fn shape(&self, wish: &Wish, json: &mut Value) {
        let Value::Object(result) = json else { return };
        if wish.plain && self.pages {
            result.shift_remove(CURSOR);
        }
        let Some(Value::Array(rows)) = result.get_mut(self.name) else { return };
        let mut rows = std::mem::take(rows);
        if wish.columns {
            let table = self.table(&wish.fields, rows);
            result.insert(self.name.to_owned(), table);
            return;
        }
        if !wish.fields.is_empty() {
            for row in rows.iter_mut().filter_map(Value::as_object_mut) {
                row.retain(|field, _| wish.fields.contains(field));
            }
        }
        result.insert(self.name.to_owned(), Value::Array(rows));
    }

    /// A null in a row says that there is no such field. Without wanted fields there is a column for whatever any row
    /// has.
    fn table(&self, wanted: &[String], rows: Vec<Value>) -> Value {
        let cols = if wanted.is_empty() { self.columns(&rows) } else { wanted.to_vec() };
        let values = |mut row: Value| {
            let cells = cols.iter().map(|field| row.get_mut(field).map_or(Value::Null, Value::take));
            cells.collect::<Value>()
        };
        let rows: Value = rows.into_iter().map(values).collect();
        json!({ "cols": cols, "rows": rows })
    }

    fn columns(&self, rows: &[Value]) -> Vec<String> {
        let has = |field: &str| rows.iter().any(|row| row.get(field).is_some());
        let mut columns: Vec<String> =
            self.fields.iter().filter(|field| has(field)).map(|&field| field.to_owned()).collect();
        for field in rows.iter().filter_map(Value::as_object).flat_map(Map::keys) {
            if !self.fields.contains(&field.as_str()) && !columns.contains(field) {
                columns.push(field.clone());
            }
        }
        columns
    }
}

/// Of the tools of Agent Swarm and Action Llama programs expect the lists that they know; Skein's own spare the model.
fn is_own(toolset: Toolset) -> bool {
    toolset == Toolset::Skein
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIST: Rows = Rows { name: "geese", fields: &["id", "name", "tags", "at"], pages: true };

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,6}".prop_map(Value::from),
            prop::collection::vec("[a-z]{0,3}", 0..3).prop_map(|texts| json!(texts)),
            Just(json!({ "cols": [], "rows": [] })),
        ]
    }

    /// Rows with some of the fields, in any order, and now and then one that is not declared.
    fn rows() -> impl Strategy<Value = Vec<Map<String, Value>>> {
        let field =
            prop_oneof![8 => prop::sample::select(LIST.fields.to_vec()), 1 => Just("more"), 1 => Just("")];
        let row = prop::collection::vec((field.prop_map(str::to_owned), value()), 0..6);
        prop::collection::vec(row.prop_map(|fields| fields.into_iter().collect()), 0..6)
    }

    fn shaped(arguments: Value, rows: &[Map<String, Value>]) -> Value {
        let Value::Object(mut arguments) = arguments else { panic!("arguments") };
        let wish = LIST.wish(Toolset::Swarm, &mut arguments);
        let mut result = json!({ "success": true, "geese": rows, "cursor": "7" });
        LIST.shape(&wish, &mut result);
        result
    }

    /// The rows of a table as objects, without what is not there.
    fn objects(table: &Value) -> Vec<Map<String, Value>> {
        let cols: Vec<String> = serde_json::from_value(table["cols"].clone()).unwrap();
        let rows: Vec<Vec<Value>> = serde_json::from_value(table["rows"].clone()).unwrap();
        let object = |row: Vec<Value>| {
            assert_eq!(row.len(), cols.len());
            cols.iter().cloned().zip(row).filter(|(_, value)| !value.is_null()).collect()
        };
        rows.into_iter().map(object).collect()
    }

    fn without_nulls(rows: &[Map<String, Value>], wanted: &[&str]) -> Vec<Map<String, Value>> {
        let has = |field: &str| wanted.is_empty() || wanted.contains(&field);
        let mut rows = rows.to_vec();
        rows.iter_mut().for_each(|row| row.retain(|field, value| has(field) && !value.is_null()));
        rows
    }

    proptest! {
        #[test]
        fn a_table_has_the_facts_of_the_rows_and_no_others(rows in rows()) {
            let result = shaped(json!({ "format": "columns" }), &rows);
            prop_assert_eq!(objects(&result["geese"]), without_nulls(&rows, &[]));
            prop_assert_eq!((&result["success"], &result["cursor"]), (&json!(true), &json!("7")));
        }

        #[test]
        fn of_wanted_fields_there_is_neither_more_nor_less(
            rows in rows(),
            wanted in prop::sample::subsequence(LIST.fields.to_vec(), 1..=4).prop_shuffle(),
        ) {
            let table = shaped(json!({ "format": "columns", "fields": wanted }), &rows)["geese"].take();
            prop_assert_eq!(&table["cols"], &json!(wanted));
            prop_assert_eq!(objects(&table), without_nulls(&rows, &wanted));
            let kept = shaped(json!({ "fields": wanted }), &rows)["geese"].take();
            let kept: Vec<Map<String, Value>> = serde_json::from_value(kept).unwrap();
            prop_assert_eq!(without_nulls(&kept, &[]), without_nulls(&rows, &wanted));
            prop_assert!(kept.iter().flat_map(Map::keys).all(|field| wanted.contains(&field.as_str())));
        }

        #[test]
        fn who_asks_for_nothing_gets_what_the_seed_gives(rows in rows()) {
            let result = shaped(json!({ "status": "idle" }), &rows);
            prop_assert_eq!(result.to_string(), json!({ "success": true, "geese": rows }).to_string());
        }
    }

    #[test]
    fn columns_stand_in_the_order_in_which_they_are_declared() {
        let rows = [json!({ "more": 1, "at": 2, "id": 3 }), json!({ "name": null })];
        let rows: Vec<Map<String, Value>> = rows.iter().map(|row| row.as_object().unwrap().clone()).collect();
        let table = shaped(json!({ "format": "columns" }), &rows)["geese"].take();
        assert_eq!(table["cols"], json!(["id", "name", "at", "more"]));
        assert_eq!(table["rows"], json!([[3, null, 2, 1], [null, null, null, null]]));
    }

    #[test]
    fn a_refusal_stays_what_it_is() {
        let mut arguments = json!({ "format": "columns" }).as_object().unwrap().clone();
        let wish = LIST.wish(Toolset::Swarm, &mut arguments);
        let refusal = json!({ "success": false, "message": "no geese", "code": "not_found" });
        let mut shaped = refusal.clone();
        LIST.shape(&wish, &mut shaped);
        assert_eq!((shaped, arguments.len()), (refusal, 0));
    }
}
