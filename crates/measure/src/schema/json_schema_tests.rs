//! The published JSON Schemas are those of the types, and every example conforms to them.

use std::collections::BTreeSet;
use std::fs;
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::example::{self, example};
use super::{Document, Outcome};
use crate::live::{self, Snapshot};

/// Environment variable that has the tests write the schemas instead of comparing them.
const WRITE: &str = "RINGSIDE_SCHEMAS";

/// Returns the path of a file below the root of the workspace.
fn workspace(path: &str) -> String {
    format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))
}

/// Compares a published schema with that of a type.
fn is_published<T: JsonSchema>(name: &str, published: &str) {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    schema.insert("$id".into(), format!("urn:{}", name.replace(['.', '/'], ":")).into());
    schema.insert("title".into(), name.into());
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    let path = workspace(&format!("crates/measure/schemas/{}.json", name.replace('/', "-")));
    if std::env::var(WRITE).as_deref() == Ok("write") {
        fs::write(path, text).unwrap();
        return;
    }
    assert_eq!(
        text, published,
        "{path}: run this test with {WRITE}=write, and look at the difference"
    );
}

#[test]
fn schemas_are_those_of_the_types() {
    is_published::<Document>(super::SCHEMA, super::JSON_SCHEMA);
    is_published::<Snapshot>(live::SCHEMA, live::JSON_SCHEMA);
}

/// Returns what a schema promises to readers, a line each: types of fields, and fields and values
/// that are always there. Descriptions are no promise.
fn promises(schema: &Value) -> BTreeSet<String> {
    let name = schema["title"].as_str().expect("a title");
    let types = schema["$defs"].as_object().into_iter().flatten();
    let root = String::from("document");
    let mut promises = BTreeSet::new();
    for (of, schema) in types.chain([(&root, schema)]) {
        for (field, kind) in schema["properties"].as_object().into_iter().flatten() {
            promises.insert(format!("{name} {of}.{field}: {}", without_words(kind)));
        }
        for field in schema["required"].as_array().into_iter().flatten() {
            promises.insert(format!("{name} {of} has {field}"));
        }
        for variant in schema["oneOf"].as_array().into_iter().flatten() {
            promises.insert(format!("{name} {of} may be {}", without_words(variant)));
        }
        for variant in schema["enum"].as_array().into_iter().flatten() {
            promises.insert(format!("{name} {of} may be {variant}"));
        }
    }
    promises
}

fn without_words(schema: &Value) -> Value {
    match schema {
        Value::Object(parts) => {
            let parts = parts.iter().filter(|(name, _)| *name != "description");
            Value::Object(parts.map(|(name, part)| (name.clone(), without_words(part))).collect())
        }
        Value::Array(parts) => Value::Array(parts.iter().map(without_words).collect()),
        other => other.clone(),
    }
}

/// Returns the published schemas.
fn schemas() -> Vec<Value> {
    let folders = ["crates/measure/schemas", "crates/cli/schemas"];
    let files = folders
        .iter()
        .flat_map(|folder| fs::read_dir(workspace(folder)).unwrap());
    let paths = files.map(|file| file.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap())
        .collect()
}

/// What was published stays; [`WRITE`] adds what is new to the list, and removes nothing.
#[test]
fn schemas_keep_what_they_have_promised() {
    let path = workspace("crates/measure/schemas/promises.txt");
    let listed = fs::read_to_string(&path).unwrap_or_default();
    let listed: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
    let now: BTreeSet<String> = schemas().iter().flat_map(promises).collect();
    if std::env::var(WRITE).as_deref() == Ok("write") {
        let all = listed.union(&now).map(|line| line.clone() + "\n");
        fs::write(path, all.collect::<String>()).unwrap();
        return;
    }
    let broken: Vec<&String> = listed.difference(&now).collect();
    assert!(broken.is_empty(), "a reader goes by this: {broken:#?}");
    let new: Vec<&String> = now.difference(&listed).collect();
    assert!(new.is_empty(), "{path}: run this test with {WRITE}=write: {new:#?}");
}

#[test]
fn a_field_that_is_renamed_or_optional_breaks_a_promise() {
    let before: Value = serde_json::from_str(super::JSON_SCHEMA).unwrap();
    let broken = |change: &dyn Fn(&mut Value)| {
        let mut after = before.clone();
        change(&mut after);
        let broken = promises(&before)
            .difference(&promises(&after))
            .cloned()
            .collect::<Vec<_>>();
        broken.join("\n")
    };
    let renamed = broken(&|schema| {
        let fields = schema["$defs"]["RunResult"]["properties"].as_object_mut();
        let fields = fields.unwrap();
        let duration = fields.remove("duration_ns").unwrap();
        fields.insert("time_ns".into(), duration);
    });
    assert!(renamed.contains("RunResult.duration_ns: "), "{renamed}");
    let optional = broken(&|schema| schema["required"] = json!([]));
    assert!(optional.contains("document has \"schema\""), "{optional}");
    let described = broken(&|schema| schema["properties"]["schema"]["description"] = json!("?"));
    assert_eq!(described, "");
    let added = broken(&|schema| schema["properties"]["more"] = json!({"type": "string"}));
    assert_eq!(added, "");
}

/// Returns what a validator finds in documents.
fn violations_in(schema: &str, paths: &[String]) -> Result<(), String> {
    let name = format!("crates/measure/schemas/{}.json", schema.replace('/', "-"));
    let done = Command::new(workspace("scripts/validate-json"))
        .arg(workspace(&name))
        .args(paths)
        .output()
        .expect("python3");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match done.status.success() {
        true => Ok(()),
        false => Err(text(&done.stdout) + &text(&done.stderr)),
    }
}

/// As [`violations_in`], of documents that are in no file.
fn violations(schema: &str, documents: &[Value]) -> Result<(), String> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let name = format!("ringside-json-{}-{}", process::id(), CALLS.fetch_add(1, Relaxed));
    let folder = std::env::temp_dir().join(name);
    fs::create_dir(&folder).unwrap();
    let mut paths = Vec::new();
    for (number, document) in documents.iter().enumerate() {
        let path = format!("{}/{number}.json", folder.display());
        fs::write(&path, document.to_string()).unwrap();
        paths.push(path);
    }
    let found = violations_in(schema, &paths);
    fs::remove_dir_all(&folder).unwrap();
    found
}

#[test]
fn every_example_conforms_to_the_schema() {
    let run = example();
    let outcomes = [
        Outcome::Compare(super::tests::comparison()),
        Outcome::Delay(example::delays()),
        Outcome::Sweep(Box::new(example::sweep())),
        Outcome::Trace(Box::new(example::trace())),
        Outcome::Lab(Box::new(super::lab::tests::lab())),
        Outcome::Steer(Box::new(example::steer())),
    ];
    let documents = outcomes.map(|result| Document { result, ..run.clone() });
    let documents: Vec<Value> = documents
        .iter()
        .chain([&run])
        .map(|document| serde_json::to_value(document).unwrap())
        .collect();
    violations(super::SCHEMA, &documents).unwrap();
    let snapshot = serde_json::to_value(live::tests::snapshot()).unwrap();
    violations(live::SCHEMA, &[snapshot]).unwrap();
}

/// Those of the documentation, and those that tests of reports read.
#[test]
fn recorded_results_conform_to_the_schema() {
    let folders = ["docs/lab", "crates/cli/tests/it/report", "crates/measure/src/schema"];
    let files = folders
        .iter()
        .flat_map(|folder| fs::read_dir(workspace(folder)).unwrap());
    let mut recorded = Vec::new();
    for file in files {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        if value["schema"] != super::SCHEMA {
            continue;
        }
        if std::env::var(WRITE).as_deref() == Ok("write") {
            let document: Document = serde_json::from_value(value.clone()).unwrap();
            // With fields that are new.
            let written = serde_json::to_value(&document).unwrap();
            if written != value {
                fs::write(&path, serde_json::to_string_pretty(&document).unwrap() + "\n").unwrap();
            }
        }
        recorded.push(path.to_str().unwrap().to_owned());
    }
    assert!(recorded.len() > 20, "{recorded:?}");
    violations_in(super::SCHEMA, &recorded).unwrap();
}

#[test]
fn what_contradicts_the_schema_is_found() {
    let found = |change: &dyn Fn(&mut Value)| {
        let mut document = serde_json::to_value(example()).unwrap();
        change(&mut document);
        violations(super::SCHEMA, &[document]).unwrap_err()
    };
    let another = found(&|document| document["schema"] = json!("ringside.result/2"));
    assert!(another.contains("$.schema: "), "{another}");
    let text = found(&|document| document["result"]["run"]["duration_ns"] = json!("1 s"));
    assert!(text.contains("$.result.run.duration_ns: "), "{text}");
    let missing = found(&|document| {
        document["result"]["run"]["packets"]
            .as_object_mut()
            .unwrap()
            .remove("sent");
    });
    assert!(missing.contains("'sent' is a required property"), "{missing}");
}
