//! Makes everything be as a file says.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use ringside_measure::{BadValue, bad_value};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use serde_saphyr::Budget;
use tonic::transport::Channel;

use super::remote::{Meant, Remote};
use super::show;
use super::simple::{next_version, word};
use super::{At, connect, named, text};
use crate::object::text::{GroupForm, NeighborForm, PortForm, Text};
use crate::object::{Group, Neighbor, Object, Port, Statement, wire};
use crate::proto;

/// `apply`
#[derive(Debug, Args)]
pub(super) struct ApplyArgs {
    /// The file; - is standard input
    #[arg(short, long)]
    file: PathBuf,
    /// Only show what would change
    #[arg(long)]
    dry_run: bool,
    /// Delete neighbours that the file does not name, of networks that it has neighbours of, and ports likewise
    #[arg(long)]
    prune: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
#[derive(Default)]
struct File {
    neighbors: Vec<NeighborForm>,
    ports: Vec<PortForm>,
    groups: Vec<GroupForm>,
    absent: Absent,
}

/// What shall not be there.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct Absent {
    neighbors: Vec<AddressForm>,
    ports: Vec<AddressForm>,
    groups: Vec<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AddressForm {
    vni: u32,
    ip: IpAddr,
}

/// What is to be said about one object.
struct Step<O: Object> {
    statement: Statement<O>,
    /// What it changes, for people.
    shown: Value,
}

/// A part of the whole.
struct Part<O: Object> {
    steps: Vec<Step<O>>,
    unchanged: usize,
}

pub(super) async fn run(at: &At, args: &ApplyArgs, json: bool) -> Result<()> {
    let name = &args.file.display().to_string();
    let yaml = match args.file.as_os_str().as_encoded_bytes() {
        b"-" => std::io::read_to_string(std::io::stdin()).context("reading standard input")?,
        _ => std::fs::read_to_string(&args.file).with_context(|| format!("reading {name}"))?,
    };
    let file = parse(&yaml).map_err(|error| BadValue(format!("{name}: {error}")))?;
    let keys = |addresses: &[AddressForm]| -> Result<Vec<_>, String> {
        addresses.iter().map(|form| text::address(form.vni, form.ip)).collect()
    };
    let wrong = |part: &'static str| {
        let what = format!("{name}: {part}");
        move |error: String| BadValue(format!("{what}: {error}"))
    };
    let gone_neighbors = keys(&file.absent.neighbors).map_err(wrong("absent.neighbors"))?;
    let gone_ports = keys(&file.absent.ports).map_err(wrong("absent.ports"))?;
    let gone_groups = file.absent.groups.iter().copied().map(wire::group_key).collect();
    let vnis = |forms: &mut dyn Iterator<Item = u32>| -> Vec<u32> {
        let vnis: BTreeSet<u32> = forms.filter(|_| args.prune).collect();
        vnis.into_iter().collect()
    };
    let of_neighbors = vnis(&mut file.neighbors.iter().map(|form| form.vni));
    let of_ports = vnis(&mut file.ports.iter().map(|form| form.vni));
    let channel = connect::connect(at).await?;
    // All is read and compared before anything is changed.
    let groups = plan::<Group>(&channel, &file.groups, gone_groups, &[])
        .await
        .with_context(|| format!("{name}: groups"))?;
    let ports = plan::<Port>(&channel, &file.ports, gone_ports, &of_ports)
        .await
        .with_context(|| format!("{name}: ports"))?;
    let neighbors = plan::<Neighbor>(&channel, &file.neighbors, gone_neighbors, &of_neighbors)
        .await
        .with_context(|| format!("{name}: neighbors"))?;
    let shown: Vec<&Value> = (groups.steps.iter().map(|step| &step.shown))
        .chain(ports.steps.iter().map(|step| &step.shown))
        .chain(neighbors.steps.iter().map(|step| &step.shown))
        .collect();
    let unchanged = groups.unchanged + ports.unchanged + neighbors.unchanged;
    if json {
        show::json(
            &json!({ "dry-run": args.dry_run, "unchanged": unchanged, "changes": shown }),
            false,
        )?;
    } else {
        let mut lines: Vec<String> = shown.iter().map(|step| line(step)).collect();
        lines.push(format!(
            "{} {}, {unchanged} unchanged",
            shown.len(),
            if args.dry_run { "would change" } else { "to change" }
        ));
        show::print(&lines.join("\n"))?;
    }
    if args.dry_run {
        return Ok(());
    }
    let (groups, ports, neighbors) = (groups.parted(), ports.parted(), neighbors.parted());
    // Rules are there before the ports that they are bound to, and these before their neighbours; what goes does so in the other order. So
    // whoever stops in between leaves no address that lacks its rules, and nothing that both the old and the new ones allow is refused.
    put(&channel, &groups.0).await?;
    put(&channel, &ports.0).await?;
    put(&channel, &neighbors.0).await?;
    delete::<Neighbor>(&channel, &neighbors.1).await?;
    delete::<Port>(&channel, &ports.1).await?;
    delete::<Group>(&channel, &groups.1).await
}

/// Reads a file. What it may hold grows with its length: an administrator's file is as long as it
/// has to be, and only aliases make more of it than is there.
fn parse(yaml: &str) -> Result<File, serde_saphyr::Error> {
    let mut budget = Budget::default();
    // Each node has a character at the least, and up to two events.
    budget.max_nodes = budget.max_nodes.max(yaml.len());
    budget.max_events = budget.max_events.max(2 * yaml.len());
    budget.max_total_scalar_bytes = budget.max_total_scalar_bytes.max(yaml.len());
    budget.max_total_comment_bytes = budget.max_total_comment_bytes.max(yaml.len());
    serde_saphyr::from_str_with_options(yaml, serde_saphyr::options! { budget: Some(budget) })
}

impl<O: Object> Part<O> {
    /// What is put, and what is deleted.
    fn parted(self) -> (Vec<O>, Vec<(O::Key, u64)>) {
        let (mut puts, mut deletes) = (Vec::new(), Vec::new());
        for step in self.steps {
            match step.statement {
                Statement::Put(object) => puts.push(object),
                Statement::Delete(key, version) => deletes.push((key, version)),
            }
        }
        (puts, deletes)
    }
}

/// What has to be said so that everything is as it was written.
async fn plan<O: Remote + Text>(
    channel: &Channel,
    forms: &[O::Form],
    absent: Vec<O::Key>,
    prune: &[u32],
) -> Result<Part<O>> {
    let mut part = Part {
        steps: Vec::new(),
        unchanged: 0,
    };
    let mut seen = BTreeSet::new();
    for form in forms {
        // Its key first: what is known decides about its version.
        let draft = O::from_text(form, 0).map_err(BadValue)?;
        let key = draft.key();
        if !seen.insert(key) {
            bad_value!("{} is there twice", named::<O>(key));
        }
        let known = O::find(channel, key).await?;
        let wanted = O::from_text(form, next_version(known.as_ref())).map_err(BadValue)?;
        let (before, version) = match &known {
            Some(Statement::Put(before)) => (Some(before), Some(before.version())),
            Some(Statement::Delete(_, version)) => (None, Some(*version)),
            None => (None, None),
        };
        let fields = differences(before, &wanted)?;
        if before.is_some() && fields.is_empty() {
            part.unchanged += 1;
            continue;
        }
        if version.is_some_and(|known| wanted.version() <= known) {
            bail!(
                "{} is known in version {}; a change takes a higher one than {}, or none to have one given",
                named::<O>(key),
                version.unwrap_or_default(),
                wanted.version()
            );
        }
        let shown = json!({
            "action": if before.is_some() { "change" } else { "create" },
            "object": named::<O>(key),
            "version": wanted.version(),
            "fields": fields,
        });
        part.steps.push(Step {
            statement: Statement::Put(wanted),
            shown,
        });
    }
    let mut gone = BTreeSet::new();
    for key in absent {
        if !gone.insert(key) {
            bad_value!("{} is under `absent` twice", named::<O>(key));
        }
        if !seen.insert(key) {
            bad_value!("{} shall be there and shall be absent", named::<O>(key));
        }
        match O::find(channel, key).await? {
            Some(Statement::Put(object)) => part.steps.push(deletion(&object)),
            _ => part.unchanged += 1,
        }
    }
    for vni in prune {
        let meant = Meant {
            filter: Some(proto::AddressFilter {
                vni: Some(*vni),
                ..proto::AddressFilter::default()
            }),
            ..Meant::default()
        };
        let mut token = Vec::new();
        loop {
            let (objects, next) = O::list(channel, &meant, token).await?;
            let others = objects.iter().filter(|object| !seen.contains(&object.key()));
            part.steps.extend(others.map(deletion));
            token = next;
            if token.is_empty() {
                break;
            }
        }
    }
    Ok(part)
}

fn deletion<O: Object>(object: &O) -> Step<O> {
    Step {
        statement: Statement::Delete(object.key(), object.version()),
        shown: json!({
            "action": "delete",
            "object": named::<O>(object.key()),
            "version": object.version(),
            "fields": [],
        }),
    }
}

/// A field that differs.
#[derive(Debug, Serialize)]
struct Difference {
    field: String,
    before: Option<Value>,
    after: Option<Value>,
}

/// Fields that differ, versions aside.
fn differences<O: Text>(before: Option<&O>, after: &O) -> Result<Vec<Difference>> {
    let fields = |object: &O| -> Result<Vec<(String, Value)>> {
        let mut fields = Vec::new();
        collect("", serde_json::to_value(object.to_text())?, &mut fields);
        fields.retain(|(name, _)| name != "version");
        Ok(fields)
    };
    let old = before.map(fields).transpose()?.unwrap_or_default();
    let new = fields(after)?;
    let value_in = |all: &[(String, Value)], name: &str| {
        all.iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.clone())
    };
    let names: BTreeSet<&String> = old.iter().chain(&new).map(|(name, _)| name).collect();
    let all = names.into_iter().map(|name| Difference {
        field: name.clone(),
        before: value_in(&old, name),
        after: value_in(&new, name),
    });
    Ok(all.filter(|field| field.before != field.after).collect())
}

/// `host.ip`, `rules.0.ports`: each value under its own name.
fn collect(prefix: &str, value: Value, into: &mut Vec<(String, Value)>) {
    let under = |name: &str| match prefix {
        "" => name.to_owned(),
        prefix => format!("{prefix}.{name}"),
    };
    match value {
        Value::Object(map) => map
            .into_iter()
            .for_each(|(name, value)| collect(&under(&name), value, into)),
        Value::Array(items) if items.iter().any(Value::is_object) => {
            let items = items.into_iter().enumerate();
            items.for_each(|(at, value)| collect(&under(&at.to_string()), value, into));
        }
        value => into.push((prefix.to_owned(), value)),
    }
}

/// A step as a line.
fn line(step: &Value) -> String {
    let word = |name: &str| step[name].as_str().unwrap_or_default();
    let sign = match word("action") {
        "create" => '+',
        "delete" => '-',
        _ => '~',
    };
    let shown = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let fields = step["fields"].as_array().into_iter().flatten().map(|field| {
        let name = field["field"].as_str().unwrap_or_default();
        match sign {
            '+' => format!("{name} {}", shown(&field["after"])),
            _ => format!("{name} {} -> {}", shown(&field["before"]), shown(&field["after"])),
        }
    });
    // What names it stands there already.
    let fields: Vec<String> = fields
        .filter(|field| sign != '+' || !["vni ", "ip ", "id "].iter().any(|key| field.starts_with(key)))
        .collect();
    let fields = if fields.is_empty() {
        String::new()
    } else {
        format!(": {}", fields.join(", "))
    };
    format!("{sign} {} (version {}){fields}", word("object"), step["version"])
}

/// Some at a time.
async fn put<O: Remote>(channel: &Channel, objects: &[O]) -> Result<()> {
    for some in objects.chunks(O::AT_ONCE as usize) {
        let keys = some.iter().map(Object::key);
        check::<O>(keys, O::put(channel, some).await?)?;
    }
    Ok(())
}

/// The same, by their keys and versions.
async fn delete<O: Remote>(channel: &Channel, keys: &[(O::Key, u64)]) -> Result<()> {
    for some in keys.chunks(O::AT_ONCE as usize) {
        let keys = some.iter().map(|(key, _)| *key);
        check::<O>(keys, O::delete(channel, some, false).await?)?;
    }
    Ok(())
}

/// Somebody else may have been faster.
fn check<O: Object>(keys: impl Iterator<Item = O::Key>, outcomes: Vec<proto::Outcome>) -> Result<()> {
    for (key, outcome) in keys.zip(outcomes) {
        if matches!(
            outcome,
            proto::Outcome::Older | proto::Outcome::Conflict | proto::Outcome::Unspecified
        ) {
            bail!(
                "{}: somebody else has changed it meanwhile ({}); apply again to see what differs now",
                named::<O>(key),
                word(outcome)
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_file_of_100000_entries() {
        let line = |number: u32| {
            let [_, b, c, d] = number.to_be_bytes();
            format!("  - {{vni: 42, ip: 10.{b}.{c}.{d}}}\n")
        };
        let lines: String = (0..100_000).map(line).collect();
        let file = parse(&format!("absent:\n  neighbors:\n{lines}")).unwrap();
        assert_eq!(file.absent.neighbors.len(), 100_000);
    }
}
