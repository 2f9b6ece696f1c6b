//! Interrupt deferral of some queues: by NAPI instance where that is possible, else of the whole interface.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::netdev::{NapiField, QueueDetail, QueueKind};
use crate::setting::{Access, InterfaceFile, Setting};
use crate::{Error, Interface, NapiSetting, Result};

/// How long a queue stays in polling instead of going back to interrupts.
///
/// With deferral an application that polls often enough keeps the interrupt off
/// (<https://docs.kernel.org/networking/napi.html#irq-mitigation>). It raises throughput and costs latency whenever
/// nobody polls: a packet then waits for up to `gro_flush_timeout`. The default is the kernel's: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Deferral {
    /// How many empty polls in a row keep the interrupt off.
    pub defer_hard_irqs: u32,
    /// How long the kernel waits for the next poll by then.
    pub gro_flush_timeout: Duration,
    /// How long the interrupt stays off while an application that prefers busy polling finds packets (Linux 6.13).
    /// `None` leaves it as it is.
    pub irq_suspend_timeout: Option<Duration>,
}

/// Which way a deferral was set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Applied {
    /// For the NAPI instances that serve the queues.
    PerNapi {
        /// Their ids.
        napis: Vec<u32>,
    },
    /// For all queues of the interface.
    InterfaceWide {
        /// Why it could not be done for the queues alone.
        reason: String,
    },
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerNapi { napis } => {
                let ids: Vec<_> = napis.iter().map(u32::to_string).collect();
                write!(f, "per NAPI instance ({})", ids.join(", "))
            }
            Self::InterfaceWide { reason } => write!(f, "for the whole interface, because {reason}"),
        }
    }
}

/// What has to be set to which value, and how that came.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) applied: Applied,
    pub(crate) values: Vec<(Setting, String)>,
}

impl Interface {
    /// Sets the interrupt deferral of receive queues.
    ///
    /// Linux 6.13 has it per NAPI instance. Where the kernel is older, or the driver does not tell which instance serves
    /// a queue (veth), the deferral of the whole interface is set, other queues included; the value tells which way it
    /// went and why. Nothing is put back later:
    /// [`changes`](crate::changes) does that.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownQueue`]; [`Error::NeedsKernel`] or [`Error::NoNapi`] if `irq_suspend_timeout` cannot be set,
    /// which no interface has as a whole; otherwise as [`Interface::set_napi`] and
    /// [`Interface::set_napi_defer_hard_irqs`].
    pub fn set_deferral(&self, queues: &[u32], deferral: Deferral) -> Result<Applied> {
        let plan = self.plan_deferral(queues, deferral)?;
        let values = plan.values.iter().map(|(setting, value)| (setting, value.as_str()));
        Access::new(self).write_all(values)?;
        Ok(plan.applied)
    }

    pub(crate) fn plan_deferral(&self, queues: &[u32], deferral: Deferral) -> Result<Plan> {
        let active = self.rx_queues()?;
        if let Some(queue) = queues.iter().find(|queue| **queue >= active) {
            return Err(Error::UnknownQueue {
                interface: self.name().to_owned(),
                queue: *queue,
                active,
            });
        }
        let napis = match self.napis() {
            Err(Error::NeedsKernel { .. }) => None,
            // Linux 6.8 to 6.12 list the instances without these settings.
            Ok(napis) if napis.iter().any(|napi| napi.defer_hard_irqs.is_none()) => None,
            other => Some(other?.into_iter().map(|napi| napi.id).collect::<Vec<_>>()),
        };
        let applied = match napis {
            None => Applied::InterfaceWide {
                reason: "this kernel has no setting per NAPI instance (Linux 6.13)".to_owned(),
            },
            Some(_) => which_napis(&self.queue_details()?, queues),
        };
        Ok(Plan {
            values: self.deferral_values(&applied, napis.as_deref(), deferral)?,
            applied,
        })
    }

    fn deferral_values(
        &self,
        applied: &Applied,
        all: Option<&[u32]>,
        deferral: Deferral,
    ) -> Result<Vec<(Setting, String)>> {
        let mut settings = vec![
            NapiSetting::DeferHardIrqs(deferral.defer_hard_irqs),
            NapiSetting::GroFlushTimeout(deferral.gro_flush_timeout),
        ];
        settings.extend(deferral.irq_suspend_timeout.map(NapiSetting::IrqSuspendTimeout));
        let of_napis = |ids: &[u32], settings: &[NapiSetting]| -> Vec<_> {
            let each = ids
                .iter()
                .flat_map(|id| settings.iter().map(|setting| (*id, setting.raw())));
            each.map(|(id, (field, value))| (Setting::Napi { id, field }, value.to_string()))
                .collect()
        };
        if let Applied::PerNapi { napis } = applied {
            return Ok(of_napis(napis, &settings));
        }
        if deferral.irq_suspend_timeout.is_some() {
            match all {
                None => return Err(Error::needs_kernel("set irq-suspend-timeout", self.name(), "6.13")),
                Some([]) => return Err(Error::no_napi("set irq-suspend-timeout", self.name())),
                Some(_) => {}
            }
        }
        // The files set all instances too. They are in the plan because each may have had a value of its own; the files
        // come last, and so are put back first, which leaves the instances to get back theirs.
        let mut values = of_napis(all.unwrap_or_default(), &settings);
        values.extend(settings.iter().filter_map(|setting| {
            let (file, value) = match setting.raw() {
                (NapiField::DeferHardIrqs, value) => (InterfaceFile::NapiDeferHardIrqs, value),
                (NapiField::GroFlushTimeout, value) => (InterfaceFile::GroFlushTimeout, value),
                _ => return None,
            };
            Some((Setting::InterfaceFile { file }, value.to_string()))
        }));
        Ok(values)
    }
}

/// The instances that serve the queues, if each of them is known.
fn which_napis(details: &[QueueDetail], queues: &[u32]) -> Applied {
    let mut napis = Vec::new();
    for queue in queues {
        let serves = |detail: &&QueueDetail| detail.kind == QueueKind::Rx && detail.id == *queue;
        let Some(napi) = details.iter().find(serves).and_then(|detail| detail.napi) else {
            return Applied::InterfaceWide {
                reason: format!("the driver does not tell which NAPI instance serves queue {queue}"),
            };
        };
        napis.push(napi);
    }
    // One instance may serve several queues.
    napis.sort_unstable();
    napis.dedup();
    Applied::PerNapi { napis }
}

#[cfg(test)]
#[path = "deferral_tests.rs"]
mod tests;
