//! What sinks, reflectors and ingress drops count.

use std::ops::{Add, Sub};

use libbpf_rs::MapHandle;
use serde::Serialize;

use crate::error::Result;
use crate::load;

/// What a program did with the packets of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Traffic {
    /// Packets that it dropped or sent back, which is what it is there for.
    pub packets: u64,
    /// The bytes of those, from the Ethernet header on, without frame check sequence.
    pub bytes: u64,
    /// Packets that it let pass to the kernel's stack.
    pub passed: u64,
}

impl Traffic {
    /// Sums over the CPUs; the order is that of `struct traffic` in traffic.h.
    pub(crate) fn read(program: &'static str, counters: &MapHandle) -> Result<Self> {
        let [packets, bytes, passed] = load::sum_per_cpu(program, "counters", counters, 0)?;
        Ok(Self { packets, bytes, passed })
    }
}

impl Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            packets: self.packets.wrapping_add(other.packets),
            bytes: self.bytes.wrapping_add(other.bytes),
            passed: self.passed.wrapping_add(other.passed),
        }
    }
}

/// What was counted between two readings: `later - earlier`.
impl Sub for Traffic {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            packets: self.packets.wrapping_sub(earlier.packets),
            bytes: self.bytes.wrapping_sub(earlier.bytes),
            passed: self.passed.wrapping_sub(earlier.passed),
        }
    }
}
