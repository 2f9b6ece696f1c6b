//! An interface of this machine that a lab has for a while.

use std::sync::Arc;

use ringside_nic::Interface;

use crate::in_use::use_of;
use crate::lab::inside;
use crate::{Error, Namespace, Result, configure};

/// One that was taken into a namespace; it goes back when this is dropped, as it was.
///
/// The kernel itself gives hardware back, to the machine's first namespace, when a namespace ends: that is where it is after a kill.
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/default_device_exit_net>
#[derive(Debug)]
pub(crate) struct Borrowed {
    home: Arc<Namespace>,
    to: Arc<Namespace>,
    interface: Interface,
    mtu: u32,
    up: bool,
}

impl Borrowed {
    /// Takes one of the namespace `home`, and leaves it down.
    pub(crate) fn take(home: &Arc<Namespace>, to: &Arc<Namespace>, name: &str) -> Result<Self> {
        let before = inside(home, || Interface::by_name(name)?.state())?;
        if let Some(use_) = home.try_run(|| use_of(name))? {
            return Err(Error::Refused {
                operation: "take into a lab",
                what: format!("'{name}'"),
                why: format!("it {use_}; free it first, or name another interface"),
            });
        }
        inside(home, || Interface::by_index(before.index)?.set_up(false))?;
        let moved = home.try_run(|| configure::move_to(before.index, to))?;
        if let Err(source) = moved {
            let _ = inside(home, || Interface::by_index(before.index)?.set_up(before.admin_up));
            return Err(configure::failed("take an interface", home, name, source));
        }
        Ok(Self {
            home: Arc::clone(home),
            to: Arc::clone(to),
            interface: inside(to, || Interface::by_name(name))?,
            mtu: before.mtu,
            up: before.admin_up,
        })
    }

    pub(crate) fn interface(&self) -> &Interface {
        &self.interface
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let (name, index) = (self.interface.name(), self.interface.index());
        // It may be gone, with its driver.
        let _ = inside(&self.to, || {
            self.interface.set_up(false)?;
            self.interface.set_mtu(self.mtu)
        });
        let back = self.to.try_run(|| configure::move_to(index, &self.home));
        if matches!(back, Ok(Ok(()))) && self.up {
            let _ = inside(&self.home, || Interface::by_name(name)?.set_up(true));
        }
    }
}
