//! What was acknowledged survives a power cut: what the daemon writes and waits for is recorded, and every state that a disk may be left in is
//! opened.
//!
//! A disk keeps what was waited for (`fsync`). Of what was written since it keeps anything: nothing, all, one write of many, all but one, and
//! a write only in part, by sectors of 512 or 4096 bytes. It is so little that the log is not written back meanwhile.

mod common;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

use common::daemon::{Daemon, binary, configure};
use common::{Folder, connect, neighbor};
use ringside_gateway::object::{Change, Statement};
use ringside_gateway::proto::neighbor_service_client::NeighborServiceClient;
use ringside_gateway::proto::{AddressVersion, DeleteNeighborsRequest, PutNeighborsRequest};
use ringside_gateway::store::Store;
use ringside_gateway_core::TenantAddress;

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

/// What is to be there: by address, version and MAC address.
type Known = HashMap<TenantAddress, (u64, [u8; 6])>;

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
    let mut store = Store::open(&path).unwrap();
    let mut known = Known::new();
    let loaded = store.load(|changes, _| {
        for change in changes {
            if let Change::Neighbor(Statement::Put(there)) = change {
                known.insert(there.address, (there.version, there.mac.0));
            }
        }
    });
    let loaded = loaded.unwrap();
    assert_eq!((loaded.quarantined, store.problems()), (0, &[][..]));
    known
}

fn key(number: u32) -> TenantAddress {
    let there = neighbor(number, 1).address.unwrap();
    let ip: [u8; 4] = there.ip.try_into().unwrap();
    TenantAddress::new(ringside_gateway_core::Vni::new(there.vni).unwrap(), ip.into())
}

fn recorder(into: &Path) {
    let source = format!("{}/tests/power/record.c", env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(into)
        .arg(source)
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Puts, puts again and deletes. What was to be there after each, and how much was recorded when it was acknowledged.
async fn load(daemon: &Daemon, recording: &Path) -> Vec<(u64, Known)> {
    let mut client = NeighborServiceClient::new(connect(&daemon.folder.join("api.sock")).await);
    let (mut known, mut after) = (Known::new(), vec![(0, Known::new())]);
    let batches = [(0, 300, 1), (300, 600, 1), (0, 600, 2), (200, 400, 0), (100, 500, 5)];
    for (from, to, version) in batches {
        if version == 0 {
            let addresses = (from..to).map(|number| AddressVersion {
                address: neighbor(number, 1).address,
                version: 4,
            });
            let request = DeleteNeighborsRequest {
                neighbors: addresses.collect(),
            };
            client.delete_neighbors(request).await.unwrap();
            (from..to).for_each(|number| _ = known.remove(&key(number)));
        } else {
            let neighbors: Vec<_> = (from..to).map(|number| neighbor(number, version)).collect();
            for there in &neighbors {
                let ip: [u8; 4] = there.address.as_ref().unwrap().ip.clone().try_into().unwrap();
                let vni = there.address.as_ref().unwrap().vni;
                let address = TenantAddress::new(ringside_gateway_core::Vni::new(vni).unwrap(), ip.into());
                known.insert(address, (version, there.mac.clone().try_into().unwrap()));
            }
            client.put_neighbors(PutNeighborsRequest { neighbors }).await.unwrap();
        }
        after.push((std::fs::metadata(recording).unwrap().len(), known.clone()));
    }
    after
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_power_cut() {
    let (folder, aside) = (Folder::new(), Folder::new());
    let (library, recording) = (aside.join("record.so"), aside.join("recording"));
    recorder(&library);
    let config = configure(&folder, "store.db", "");
    let mut command = binary();
    command.arg("--config").arg(config).env("LD_PRELOAD", &library);
    command
        .env("RINGSIDE_RECORD", &recording)
        .env("RINGSIDE_RECORD_OF", folder.join("store.db"));
    let daemon = Daemon::spawn(folder, command);
    let after = load(&daemon, &recording).await;
    drop(daemon.kill());

    let bytes = std::fs::read(&recording).unwrap();
    let all = records(&bytes);
    let syncs = all.iter().filter(|record| record.what == b's').count();
    // Or else it was not what is meant here.
    assert!(syncs > after.len(), "{syncs} syncs");
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
                assert!(
                    is,
                    "{}: {} neighbours, not {}",
                    told(),
                    known.len(),
                    after[least].1.len()
                );
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
