//! Writes down the arguments of a tool once, and gives the two forms of their JSON Schema: the complete one,
//! which validates, and the brief one, which the core view lists to spare the context of the model.

use serde_json::{Map, Value, json};

/// The arguments of one tool, in the order in which they are listed.
#[derive(Clone, Debug, Default)]
pub struct Args {
    arguments: Vec<Argument>,
    /// Unknown arguments are an error. The toolsets of Agent Swarm and Action Llama drop them in silence instead.
    closed: bool,
    /// In place of all that.
    written: Option<Map<String, Value>>,
}

#[derive(Clone, Debug)]
struct Argument {
    name: &'static str,
    about: &'static str,
    schema: Value,
    required: bool,
    /// The brief form leaves it out.
    rare: bool,
    /// It names an agent, or several: by id or by name.
    agent: bool,
}

impl Args {
    pub fn none() -> Self {
        Self::default()
    }

    /// A required argument.
    #[must_use]
    pub fn need(self, name: &'static str, schema: Value, about: &'static str) -> Self {
        self.add(Argument { name, about, schema, required: true, rare: false, agent: false })
    }

    /// An optional argument.
    #[must_use]
    pub fn take(self, name: &'static str, schema: Value, about: &'static str) -> Self {
        self.add(Argument { name, about, schema, required: false, rare: false, agent: false })
    }

    /// An optional argument that few callers need: it is taken, and shown only in the complete form.
    #[must_use]
    pub fn rare(self, name: &'static str, schema: Value, about: &'static str) -> Self {
        self.add(Argument { name, about, schema, required: false, rare: true, agent: false })
    }

    /// The last argument names an agent, or several. Names are taken as well as ids; its handler gets ids.
    #[must_use]
    pub fn of_agents(mut self) -> Self {
        if let Some(last) = self.arguments.last_mut() {
            last.agent = true;
        }
        self
    }

    /// The arguments that name agents.
    pub fn agents(&self) -> impl Iterator<Item = &'static str> {
        self.arguments.iter().filter(|argument| argument.agent).map(|argument| argument.name)
    }

    #[must_use]
    pub fn closed(mut self) -> Self {
        self.closed = true;
        self
    }

    /// A schema that is written out as it is, for what arguments cannot say.
    #[must_use]
    pub fn written(schema: Map<String, Value>) -> Self {
        Self { written: Some(schema), ..Self::default() }
    }

    /// Whether a client sends some of the arguments as headers too.
    pub fn mirrored(&self) -> bool {
        self.arguments.iter().any(|argument| argument.schema.get("x-mcp-header").is_some())
    }

    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.arguments.iter().map(|argument| argument.name)
    }

    /// The complete schema.
    pub fn full(&self) -> Map<String, Value> {
        let shown = self.arguments.iter().map(|argument| (argument, described(argument)));
        let mut schema = self.object(shown);
        if self.closed {
            schema.insert("additionalProperties".to_owned(), Value::Bool(false));
        }
        schema
    }

    /// The schema of the core view: no rare arguments and no limits.
    pub fn brief(&self) -> Map<String, Value> {
        let shown = self.arguments.iter().filter(|argument| !argument.rare);
        self.object(shown.map(|argument| (argument, unlimited(&described(argument)))))
    }

    fn object<'a>(&self, shown: impl Iterator<Item = (&'a Argument, Value)>) -> Map<String, Value> {
        if let Some(written) = &self.written {
            return written.clone();
        }
        let mut properties = Map::new();
        let mut required = Vec::new();
        for (argument, schema) in shown {
            properties.insert(argument.name.to_owned(), schema);
            if argument.required {
                required.push(argument.name);
            }
        }
        let mut object = Map::new();
        object.insert("type".to_owned(), json!("object"));
        object.insert("properties".to_owned(), Value::Object(properties));
        if !required.is_empty() {
            object.insert("required".to_owned(), json!(required));
        }
        object
    }

    fn add(mut self, argument: Argument) -> Self {
        self.arguments.push(argument);
        self
    }
}

fn described(argument: &Argument) -> Value {
    let mut schema = argument.schema.clone();
    if let Value::Object(fields) = &mut schema {
        fields.insert("description".to_owned(), json!(argument.about));
    }
    schema
}

/// How long texts, how large numbers and how many items may be, and how they are spelt: none of it is needed to get a
/// call right most of the time. Whoever gets that wrong is told by the validator, with the complete schema.
const LIMITS: [&str; 8] =
    ["minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "maxItems", "format", "default"];

/// What is listed of a complete schema: the rest costs a model more than it helps.
pub fn listed(schema: Map<String, Value>) -> Value {
    unlimited(&Value::Object(schema))
}

/// An argument that means the same at every tool that takes it.
pub struct Common {
    pub name: &'static str,
    pub schema: Value,
    pub about: String,
    /// The same where it is listed with every such tool, and costs as often.
    pub in_short: &'static str,
}

impl Common {
    pub fn full(mut self) -> (String, Value) {
        self.schema["description"] = json!(self.about);
        (self.name.to_owned(), self.schema)
    }

    /// Which kind of value it is, and two words about it.
    pub fn listed(self) -> (String, Value) {
        let mut schema = unlimited(&self.schema);
        if let Value::Object(keywords) = &mut schema {
            keywords.shift_remove("minItems");
            if let Some(Value::Object(items)) = keywords.get_mut("items") {
                items.shift_remove("enum");
            }
        }
        schema["description"] = json!(self.in_short);
        (self.name.to_owned(), schema)
    }
}

/// A schema without its limits.
fn unlimited(schema: &Value) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    let kept = fields.iter().filter(|(keyword, _)| !LIMITS.contains(&keyword.as_str()));
    let each = kept.map(|(keyword, value)| {
        let value = match (keyword.as_str(), value) {
            // The names in there are those of arguments.
            ("properties", Value::Object(arguments)) => {
                let each = arguments.iter();
                Value::Object(each.map(|(name, schema)| (name.clone(), unlimited(schema))).collect())
            }
            _ => unlimited(value),
        };
        (keyword.clone(), value)
    });
    Value::Object(each.collect())
}

/// A text of at least one character.
pub fn text(max: usize) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": max })
}

/// A text that may be empty.
pub fn any_text(max: usize) -> Value {
    json!({ "type": "string", "maxLength": max })
}

/// An agent, by its id or its name.
pub fn agent() -> Value {
    text(200)
}

pub fn uuid() -> Value {
    json!({ "type": "string", "format": "uuid" })
}

/// A point in time, ISO 8601.
pub fn instant() -> Value {
    json!({ "type": "string", "format": "date-time" })
}

pub fn integer(min: i64, max: i64) -> Value {
    json!({ "type": "integer", "minimum": min, "maximum": max })
}

/// A whole number without an end that anybody would reach.
pub fn at_least(min: i64) -> Value {
    json!({ "type": "integer", "minimum": min })
}

pub fn flag() -> Value {
    json!({ "type": "boolean" })
}

pub fn one_of(values: &[&str]) -> Value {
    json!({ "type": "string", "enum": values })
}

pub fn list(items: Value, max: usize) -> Value {
    json!({ "type": "array", "items": items, "maxItems": max })
}

pub fn object() -> Value {
    json!({ "type": "object" })
}

/// The schema of a result: an object with these fields, open for more.
pub fn result(fields: Value) -> Value {
    json!({ "type": "object", "properties": fields })
}

/// `schema`, or null.
pub fn or_null(mut schema: Value) -> Value {
    if let Some(kind) = schema.get_mut("type") {
        *kind = json!([kind.clone(), "null"]);
    }
    schema
}

/// The arguments that are whole numbers by the schema, or null.
pub fn whole_numbers(schema: &Map<String, Value>) -> Vec<String> {
    let is_whole = |argument: &Value| match &argument["type"] {
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "integer"),
        kind => kind == "integer",
    };
    let arguments = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    arguments.filter(|(_, argument)| is_whole(argument)).map(|(name, _)| name.clone()).collect()
}

/// Takes the point out of these arguments, which fit their schema. To that 5.0 is a whole number, and clients send it
/// so that have one kind of number alone; those who read it find a fraction.
pub fn write_whole(arguments: &mut Value, whole: &[String]) {
    for argument in whole {
        if let Some(value) = arguments.get_mut(argument)
            && let Some(whole) = without_point(value)
        {
            *value = whole;
        }
    }
}

/// A number that is written with a point, as the whole one that it is. One that is larger than those may be stays as it
/// is.
fn without_point(value: &Value) -> Option<Value> {
    let digits = value.as_f64().filter(|_| value.is_f64())?.to_string();
    digits.parse::<i64>().map(Value::from).or_else(|_| digits.parse::<u64>().map(Value::from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_brief_form_leaves_out_what_a_model_can_do_without() {
        let args = Args::none()
            .need("task", text(100), "what to do")
            .take("how", one_of(&["a", "b"]), "in which way")
            .rare("repo", text(5), "where");
        assert_eq!(
            Value::Object(args.brief()),
            json!({
                "type": "object",
                "properties": {
                    "task": { "type": "string", "description": "what to do" },
                    "how": { "type": "string", "enum": ["a", "b"], "description": "in which way" },
                },
                "required": ["task"],
            })
        );
        assert_eq!(args.full()["properties"]["repo"]["description"], "where");
    }

    #[test]
    fn a_list_names_no_limits_and_every_argument() {
        let args =
            Args::none().need("maxLength", list(text(7), 3), "an argument").take("n", integer(0, 9), "n");
        assert_eq!(
            listed(args.full()),
            json!({
                "type": "object",
                "properties": {
                    "maxLength": { "type": "array", "items": { "type": "string" }, "description": "an argument" },
                    "n": { "type": "integer", "description": "n" },
                },
                "required": ["maxLength"],
            })
        );
    }
}
