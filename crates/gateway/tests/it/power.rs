//! What was acknowledged survives a power cut: what the daemon writes and waits for is recorded, and every state that a disk may be left in is
//! opened.
//!
//! A disk keeps what was waited for (`fsync`). Of what was written since it keeps anything: nothing, all, one write of many, all but one, and
//! a write only in part, by sectors of 512 or 4096 bytes. The log is written back into the file when the daemon ends.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

use crate::common::daemon::{Daemon, binary, configure};
use crate::common::disk::compile;
use crate::common::{Folder, connect, neighbor};
use ringside_gateway::object::{Change, GroupKey, Object, Statement};
use ringside_gateway::proto::neighbor_service_client::NeighborServiceClient;
use ringside_gateway::proto::port_service_client::PortServiceClient;
use ringside_gateway::proto::security_group_service_client::SecurityGroupServiceClient;
use ringside_gateway::proto::{
    AddressVersion, DeleteNeighborsRequest, DeletePortsRequest, DeleteSecurityGroupsRequest, Direction, Neighbor, Port,
    PutNeighborsRequest, PutPortsRequest, PutSecurityGroupsRequest, Rule, SecurityGroup, SecurityGroupVersion,
};
use ringside_gateway::store::{Store, StoreError};
use ringside_gateway_core::TenantAddress;
use ringside_gateway_core::policy::GroupId;
use ringside_netlab::wait_until;

/// Of each place of a cut, how many writes are looked at one by one.
const CLOSELY: usize = 4;

/// What the recorder has seen.
#[derive(Debug)]
struct Record {
    what: u8,
    file: String,
    at: usize,
    data: Vec<u8>,
    /// Where the next one begins in the recording.
    end: u64,
}

fn records(recording: &[u8]) -> Vec<Record> {
    let mut all = Vec::new();
    let mut rest = recording;
    while let Some((head, behind)) = rest.split_first_chunk::<14>() {
        let [what, name, numbers @ ..] = head;
        let at = u64::from_le_bytes(*numbers.first_chunk().unwrap());
        let length = u32::from_le_bytes(*numbers.last_chunk().unwrap());
        let (file, behind) = behind.split_at(usize::from(*name));
        let (data, behind) = behind.split_at(length as usize);
        rest = behind;
        all.push(Record {
            what: *what,
            file: String::from_utf8(file.to_vec()).unwrap(),
            at: usize::try_from(at).unwrap(),
            data: data.to_vec(),
            end: (recording.len() - rest.len()) as u64,
        });
    }
    assert!(rest.is_empty(), "half a record: {rest:?}");
    // Shared memory and locks are nothing that has to survive.
    all.retain(|record| !record.file.ends_with("-shm") && !record.file.ends_with(".lock"));
    all
}

/// Files by the end of their names.
type Files = BTreeMap<String, Vec<u8>>;

fn apply(files: &mut Files, record: &Record, most: usize) {
    if record.what == b'd' {
        files.remove(&record.file);
        return;
    }
    let file = files.entry(record.file.clone()).or_default();
    if record.what == b't' {
        return file.resize(record.at, 0);
    }
    let data = &record.data[..record.data.len().min(most)];
    if file.len() < record.at + data.len() {
        file.resize(record.at + data.len(), 0);
    }
    file[record.at..record.at + data.len()].copy_from_slice(data);
}

/// What is safe, and what was written since.
#[derive(Default)]
struct Disk<'a> {
    safe: Files,
    pending: Vec<&'a Record>,
}

impl<'a> Disk<'a> {
    fn note(&mut self, record: &'a Record) {
        if record.what != b's' {
            self.pending.push(record);
            return;
        }
        // A folder that was waited for has what was made and deleted in it.
        let is_safe = |other: &Record| {
            if record.file == "/" {
                other.what == b'd'
            } else {
                other.file == record.file
            }
        };
        for done in self.pending.extract_if(.., |other| is_safe(other)) {
            apply(&mut self.safe, done, usize::MAX);
        }
    }

    /// What may be left of it if the power goes now.
    fn left(&self) -> Vec<(String, Files)> {
        let count = self.pending.len();
        let with = |keeps: &dyn Fn(usize) -> usize| {
            let mut files = self.safe.clone();
            for (number, record) in self.pending.iter().enumerate() {
                let most = keeps(number);
                if most > 0 {
                    apply(&mut files, record, most);
                }
            }
            files
        };
        let mut all = vec![("nothing".to_owned(), with(&|_| 0))];
        if count == 0 {
            return all;
        }
        all.push(("everything".to_owned(), with(&|_| usize::MAX)));
        // Some of them: first, last, and between.
        let mut some: Vec<usize> = (0..CLOSELY).map(|part| part * (count - 1) / (CLOSELY - 1)).collect();
        some.dedup();
        for one in some {
            let all_or = |is: bool, most: usize| if is { usize::MAX } else { most };
            all.push((
                format!("only {one} of {count}"),
                with(&|number| all_or(number == one, 0)),
            ));
            all.push((
                format!("all but {one} of {count}"),
                with(&|number| all_or(number != one, 0)),
            ));
            for sector in [512, 4096] {
                if self.pending[one].data.len() > sector {
                    let name = format!("{sector} bytes of {one} of {count}");
                    all.push((name, with(&|number| all_or(number != one, sector))));
                }
            }
        }
        all
    }
}

/// What is to be there, or is known to be gone: its version and what it says, by what it is about.
type Known = HashMap<String, (u64, String)>;

fn said(change: &Change) -> (String, (u64, String)) {
    fn one<O: Object>(kind: &str, statement: &Statement<O>, what: impl Fn(&O) -> String) -> (String, (u64, String)) {
        let (version, what) = match statement {
            Statement::Put(object) => (object.version(), what(object)),
            Statement::Delete(_, version) => (*version, "gone".to_owned()),
        };
        (format!("{kind} {:?}", statement.key()), (version, what))
    }
    match change {
        Change::Neighbor(statement) => one("neighbor", statement, |there| format!("{:?}", there.mac.0)),
        Change::Port(statement) => one("port", statement, |there| format!("{:?}", there.groups)),
        Change::Group(statement) => one("group", statement, |there| there.rules.len().to_string()),
    }
}

/// Opens a store that was left so.
fn opened(folder: &Folder, files: &Files) -> Known {
    let path = folder.join("store.db");
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let path = folder.join(&format!("store.db{suffix}"));
        _ = std::fs::remove_file(&path);
        if let Some(bytes) = files.get(suffix) {
            std::fs::write(&path, bytes).unwrap();
        }
    }
    // A process that another test starts holds this one's lock of the store before, until it executes its program.
    let mut store = None;
    wait_until(Duration::from_secs(10), || match Store::open(&path) {
        Err(StoreError::InUse { .. }) => false,
        opened => store.insert(opened).is_ok(),
    });
    let mut store = store.expect("the lock is free").unwrap();
    let mut known = Known::new();
    let loaded = store.load(|changes, _| known.extend(changes.iter().map(said)));
    let loaded = loaded.unwrap();
    assert_eq!((loaded.quarantined, store.problems()), (0, &[][..]));
    known
}

fn key(number: u32) -> TenantAddress {
    let there = neighbor(number, 1).address.unwrap();
    let ip: [u8; 4] = there.ip.try_into().unwrap();
    TenantAddress::new(ringside_gateway_core::Vni::new(there.vni).unwrap(), ip.into())
}

/// Puts, puts again and deletes, of each kind. What was to be there after each, and how much was recorded when it was acknowledged.
async fn load(daemon: &Daemon, recording: &Path) -> Vec<(u64, Known)> {
    let channel = connect(&daemon.folder.join("api.sock")).await;
    let mut neighbors = NeighborServiceClient::new(channel.clone());
    let mut ports = PortServiceClient::new(channel.clone());
    let mut groups = SecurityGroupServiceClient::new(channel);
    let (mut known, mut after) = (Known::new(), vec![(0, Known::new())]);
    let batches = [(0, 300, 1), (300, 600, 1), (0, 600, 2), (200, 400, 0), (100, 500, 5)];
    for (from, to, version) in batches {
        // What is acknowledged for all of these: an object of the same kind in this version, or that it is gone.
        let mut note = |kind: &str, keys: Vec<String>, what: &dyn Fn(usize) -> String| {
            for (at, key) in keys.into_iter().enumerate() {
                let (version, what) = if version == 0 {
                    (4, "gone".to_owned())
                } else {
                    (version, what(at))
                };
                known.insert(format!("{kind} {key}"), (version, what));
            }
            after.push((std::fs::metadata(recording).unwrap().len(), known.clone()));
        };
        let of_group = |number: u32| u64::from(number % 3) + version;
        let all: Vec<_> = (from..to).map(|number| neighbor(number, version)).collect();
        let gone: Vec<_> = (all.iter())
            .map(|there| AddressVersion {
                address: there.address.clone(),
                version: 4,
            })
            .collect();
        let keys: Vec<String> = (from..to).map(|number| format!("{:?}", key(number))).collect();
        let some = 50;
        if version == 0 {
            let request = DeleteNeighborsRequest {
                neighbors: gone.clone(),
                any_version: false,
            };
            neighbors.delete_neighbors(request).await.unwrap();
        } else {
            let request = PutNeighborsRequest { neighbors: all.clone() };
            neighbors.put_neighbors(request).await.unwrap();
        }
        note("neighbor", keys.clone(), &|at| {
            format!("{:?}", <[u8; 6]>::try_from(&*all[at].mac).unwrap())
        });
        if version == 0 {
            let request = DeletePortsRequest {
                ports: gone[..some].to_vec(),
                any_version: false,
            };
            ports.delete_ports(request).await.unwrap();
        } else {
            let port = |there: &Neighbor| Port {
                address: there.address.clone(),
                groups: vec![u32::try_from(version).unwrap()],
                version,
            };
            let ports_of = all[..some].iter().map(port).collect();
            ports.put_ports(PutPortsRequest { ports: ports_of }).await.unwrap();
        }
        note("port", keys[..some].to_vec(), &|_| {
            format!("{:?}", [GroupId(u32::try_from(version).unwrap())])
        });
        if version == 0 {
            let gone = |id| SecurityGroupVersion { id, version: 4 };
            let request = DeleteSecurityGroupsRequest {
                groups: (1..5).map(gone).collect(),
                any_version: false,
            };
            groups.delete_security_groups(request).await.unwrap();
        } else {
            let rule = |id| Rule {
                id,
                direction: Direction::Ingress.into(),
                ..Rule::default()
            };
            let group = |id| SecurityGroup {
                id,
                name: String::new(),
                rules: (0..of_group(id)).map(|number| rule(number + 1)).collect(),
                version,
            };
            let request = PutSecurityGroupsRequest {
                groups: (1..5).map(group).collect(),
            };
            groups.put_security_groups(request).await.unwrap();
        }
        let ids = (1..5).map(|id| format!("{:?}", GroupKey(GroupId(id)))).collect();
        note("group", ids, &|at| of_group(u32::try_from(at).unwrap() + 1).to_string());
    }
    after
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_power_cut() {
    let (folder, aside) = (Folder::new(), Folder::new());
    let library = compile("power/record.c", aside.join("record.so"), &["-shared", "-fPIC"]);
    let recording = aside.join("recording");
    let config = configure(&folder, "store.db", "");
    let mut command = binary();
    command.arg("--config").arg(config).env("LD_PRELOAD", &library);
    command
        .env("RINGSIDE_RECORD", &recording)
        .env("RINGSIDE_RECORD_OF", folder.join("store.db"));
    let daemon = Daemon::spawn(folder, command);
    let after = load(&daemon, &recording).await;
    drop(daemon.stop());

    let bytes = std::fs::read(&recording).unwrap();
    let all = records(&bytes);
    let syncs = all.iter().filter(|record| record.what == b's').count();
    // Or else it was not what is meant here.
    assert!(syncs > after.len(), "{syncs} syncs");
    let last = after.last().unwrap().0;
    let written_back = all.iter().filter(|record| record.file.is_empty() && record.end > last);
    assert!(written_back.count() > 10, "the log is written back");
    let (mut disk, mut end, mut states) = (Disk::default(), 0, 0);
    for record in all.iter().map(Some).chain([None]) {
        // Just before something is waited for, and at the end: more is pending at no other time.
        if record.is_none_or(|record| record.what == b's') {
            // What was acknowledged by now; one more may be there.
            let least = after.iter().rposition(|(recorded, _)| *recorded <= end).unwrap();
            for (left, files) in disk.left() {
                let known = opened(&aside, &files);
                let told = || {
                    format!(
                        "{left} after {end} bytes of the recording, before {:?}",
                        record.map(|next| &next.file)
                    )
                };
                let is = after.iter().skip(least).take(2).any(|(_, expected)| *expected == known);
                assert!(is, "{}: {} objects, not {}", told(), known.len(), after[least].1.len());
                states += 1;
            }
        }
        if let Some(record) = record {
            disk.note(record);
            end = record.end;
        }
    }
    println!("{states} states of {syncs} syncs and {} records", all.len());
}
