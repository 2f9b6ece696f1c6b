//! `ringside rx --hints` and `--program`: hints found by themselves, and what they were.

mod nic;

use std::fmt::Write as _;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use ringside_bpf::UserProgram;
use ringside_measure::schema::{FieldHints, HintsResult, LayoutHints, Number};
use ringside_nic::Interface;
use ringside_nic::clock::Timestamp;
use ringside_xsk::hints::{Btf, HintCounters, Layouts, NicReader, RawHints, Value};
use ringside_xsk::{AttachedProgram, Burst, Port, PortBuilder, Program, QueueOptions};

use crate::args::{RxArgs, bad_value};
use crate::output;

/// Which program feeds the sockets, and which hints are read.
pub(super) struct Source {
    program: Feeder,
    layouts: Option<Arc<Layouts>>,
    /// Of our own program.
    nic: Option<NicReader>,
}

impl Source {
    /// Loads what the command line asks for.
    pub(super) fn new(args: &RxArgs, interface: &Interface) -> Result<Self> {
        let program = match &args.program {
            Some(file) => Feeder::User(load(file, args, interface)?),
            None if args.attached => Feeder::Attached(attached(interface)?),
            None => Feeder::Own,
        };
        let (layouts, nic) = match (args.hints, &program) {
            (false, _) => (None, None),
            (true, Feeder::Own) => {
                let (layouts, nic) = Layouts::ringside_nic();
                (Some(layouts), Some(nic))
            }
            (true, Feeder::User(program)) => (Some(found(program.name(), &Btf::object(program.object())?)?), None),
            (true, Feeder::Attached(program)) => (Some(found(program.name(), &program.btf()?)?), None),
        };
        Ok(Self {
            program,
            layouts: layouts.map(Arc::new),
            nic,
        })
    }

    /// Whether it is another program than ours.
    pub(super) fn is_foreign(&self) -> bool {
        !matches!(self.program, Feeder::Own)
    }

    /// The port with this program and these hints.
    pub(super) fn apply(&self, builder: PortBuilder) -> Result<PortBuilder> {
        let again = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().context("keeping the program");
        Ok(match &self.program {
            Feeder::Own => builder,
            Feeder::User(program) => builder.program(Program::Custom {
                program: again(program.program())?,
                xsks_map: again(program.xsks_map())?,
            }),
            Feeder::Attached(program) => builder.program(Program::Attached {
                xsks_map: again(program.xsks_map())?,
            }),
        })
    }

    pub(super) fn options(&self, options: QueueOptions) -> QueueOptions {
        match &self.layouts {
            Some(layouts) => options.hints(Arc::clone(layouts)),
            None => options,
        }
    }

    pub(super) fn table(&self) -> Option<Table> {
        let layouts = self.layouts.as_deref()?;
        Some(Table {
            layouts: layouts_of(layouts),
            nic: self.nic.map(|reader| (reader, nic::Table::new())),
        })
    }
}

/// Who redirects to the sockets.
enum Feeder {
    Own,
    User(UserProgram),
    Attached(AttachedProgram),
}

fn attached(interface: &Interface) -> Result<AttachedProgram> {
    let program = AttachedProgram::of(interface).context("--attached")?;
    output::note(format_args!(
        "XDP program {} id {}, which is attached",
        program.name(),
        program.id()
    ));
    Ok(program)
}

fn load(file: &Path, args: &RxArgs, interface: &Interface) -> Result<UserProgram> {
    let queues = interface.rx_queues()?;
    let (name, several) = (args.program_name.as_deref(), args.port.multi_buffer);
    let program = UserProgram::load_on(file, name, queues, several, interface.index())?;
    output::note(format_args!("XDP program {} of {}", program.name(), file.display()));
    if program.device().is_some() {
        output::note(format_args!(
            "it asks the driver about packets, so it is loaded for {interface} alone, and not for generic mode"
        ));
    }
    Ok(program)
}

/// The structs of hints of a program that is not ours; it is an error that there are none.
fn found(program: &str, btf: &Btf) -> Result<Layouts> {
    let layouts = Layouts::of(btf)?;
    for problem in layouts.problems() {
        output::note(format_args!("no hints: {problem}"));
    }
    if layouts.is_empty() {
        bad_value!(
            "--hints: program {} has no struct of hints in its BTF: one ends with `__u32 btf_id`, see ringside/hints.h",
            program
        );
    }
    Ok(layouts)
}

/// What a worker has seen.
pub(super) struct Table {
    layouts: Vec<LayoutHints>,
    nic: Option<(NicReader, nic::Table)>,
}

fn layouts_of(layouts: &Layouts) -> Vec<LayoutHints> {
    let layouts = layouts.iter().map(|layout| LayoutHints {
        name: layout.name().to_owned(),
        id: layout.id(),
        size_bytes: layout.size(),
        packets: 0,
        fields: layout
            .fields()
            .split_last()
            .map_or(&[][..], |(_id, fields)| fields)
            .iter()
            .map(|field| FieldHints {
                name: field.name().to_owned(),
                offset_bytes: field.offset(),
                size_bytes: field.size(),
                signed: field.is_signed(),
                min: None,
                max: None,
                last: Vec::with_capacity(field.count().unwrap_or(1) as usize),
            })
            .collect(),
    });
    layouts.collect()
}

impl Table {
    /// Notes the packets of a burst.
    pub(super) fn note(&mut self, burst: &mut Burst<'_>) {
        let taken = Timestamp::now();
        for packet in burst {
            let hints = packet.raw_hints();
            if let Some((reader, table)) = &mut self.nic {
                // One that has none was counted for it.
                let told = hints.and_then(|_| reader.packet(&packet));
                table.note(told.as_ref(), taken);
            }
            if let Some(hints) = hints {
                self.note_fields(&hints);
            }
        }
    }

    fn note_fields(&mut self, hints: &RawHints<'_>) {
        let id = hints.layout().id();
        let Some(layout) = self.layouts.iter_mut().find(|layout| layout.id == id) else {
            return;
        };
        layout.packets += 1;
        for (seen, (_, values)) in layout.fields.iter_mut().zip(hints.values()) {
            seen.last.clear();
            for value in values.map(number) {
                seen.min = Some(seen.min.map_or(value, |least| least.min(value)));
                seen.max = Some(seen.max.map_or(value, |most| most.max(value)));
                seen.last.push(value);
            }
        }
    }

    fn add(&mut self, other: Self) {
        if let (Some((_, sum)), Some((_, other))) = (&mut self.nic, other.nic) {
            sum.add(other);
        }
        for (sum, other) in self.layouts.iter_mut().zip(other.layouts) {
            sum.packets += other.packets;
            for (field, other) in sum.fields.iter_mut().zip(other.fields) {
                field.min = [field.min, other.min].into_iter().flatten().min();
                field.max = [field.max, other.max].into_iter().flatten().max();
                if !other.last.is_empty() {
                    field.last = other.last;
                }
            }
        }
    }
}

fn number(value: Value) -> Number {
    match value {
        Value::Unsigned(value) => Number::Unsigned(value),
        Value::Signed(value) => Number::Signed(value),
    }
}

/// Where the workers leave their tables.
#[derive(Default)]
pub(super) struct Tables(Mutex<Option<Table>>);

impl Tables {
    pub(super) fn add(&self, table: Table) {
        let mut sum = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *sum {
            Some(sum) => sum.add(table),
            None => *sum = Some(table),
        }
    }

    /// The result, with what the queues have counted of packets without hints.
    pub(super) fn result(self, port: &Port) -> Option<HintsResult> {
        let table = self.0.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        let counters: Vec<HintCounters> = port.queues().iter().map(ringside_xsk::Queue::hint_counters).collect();
        let sum = |field: fn(&HintCounters) -> u64| counters.iter().map(field).sum();
        Some(HintsResult {
            layouts: table.layouts,
            nic: table.nic.map(|(_, nic)| nic.result(port)),
            absent_packets: sum(|queue| queue.absent),
            unknown_packets: sum(|queue| queue.unknown),
            stale_packets: sum(|queue| queue.stale),
        })
    }
}

/// The result as a table.
pub(crate) fn text(hints: &HintsResult) -> String {
    let mut text = String::new();
    if let Some(nic) = &hints.nic {
        nic::text(nic, &mut text);
    }
    // Our own program writes one of its two structs.
    let own = hints.nic.is_some() && hints.layouts.iter().any(|layout| layout.packets != 0);
    for layout in hints.layouts.iter().filter(|layout| !own || layout.packets != 0) {
        _ = writeln!(
            text,
            "hints {} (id {}, {} bytes): {} packets",
            layout.name, layout.id, layout.size_bytes, layout.packets
        );
        if layout.packets == 0 {
            continue;
        }
        let cell = |number: Option<Number>| number.map_or_else(String::new, |number| number.to_string());
        let width = layout
            .fields
            .iter()
            .map(|field| field.name.len())
            .max()
            .unwrap_or(0)
            .max(5);
        _ = writeln!(
            text,
            "  {:<width$}  type     {:>20} {:>20}  last",
            "field", "min", "max"
        );
        for field in &layout.fields {
            let sign = if field.signed { 's' } else { 'u' };
            let many = match field.last.len() {
                1 => String::new(),
                many => format!("[{many}]"),
            };
            let last: Vec<String> = field.last.iter().map(Number::to_string).collect();
            let kind = format!("{sign}{}{many}", field.size_bytes * 8);
            _ = writeln!(
                text,
                "  {:<width$}  {kind:<8} {:>20} {:>20}  {}",
                field.name,
                cell(field.min),
                cell(field.max),
                last.join(" ")
            );
        }
    }
    for (packets, why) in [
        (hints.absent_packets, "no hints in front of them"),
        (hints.unknown_packets, "an id that is none of the program's"),
        (
            hints.stale_packets,
            "a front that cannot be trusted: their start was moved",
        ),
    ] {
        if packets != 0 {
            _ = writeln!(text, "hints: {packets} packets with {why}");
        }
    }
    text
}
