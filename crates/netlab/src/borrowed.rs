//! An interface of this machine that a test bed has for a while.

use std::sync::Arc;

use ringside_nic::Interface;

use crate::in_use::use_of;
use crate::lab::{inside, wait_ready};
use crate::{Error, Namespace, Result, configure};

/// One that was taken into a namespace; it goes back when this is dropped, as it was.
///
/// The kernel itself gives hardware back, to the machine's first namespace, when a namespace ends: that is where it is after a kill.
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/default_device_exit_net>
#[derive(Debug)]
pub struct Borrowed {
    home: Arc<Namespace>,
    to: Arc<Namespace>,
    interface: Interface,
    mtu: u32,
    up: bool,
    is_back: bool,
}

impl Borrowed {
    /// Takes one of the namespace `home`, and leaves it down, without addresses.
    ///
    /// # Errors
    ///
    /// [`Error::Interface`] if there is none of that name, [`Error::Refused`] if somebody needs it ([`use_of`](crate::use_of)).
    pub fn take(home: &Arc<Namespace>, to: &Arc<Namespace>, name: &str) -> Result<Self> {
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
            is_back: false,
        })
    }

    /// The interface, where it is now.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Switches it on, without IPv6, so that it says nothing by itself, and waits until packets pass.
    ///
    /// # Errors
    ///
    /// [`Error::NotReady`] if it has no carrier in time.
    pub fn bring_up(&self) -> Result<()> {
        let name = self.interface.name();
        self.to.try_run(|| configure::quiet_ipv6(&self.to, name, false))??;
        inside(&self.to, || self.interface.set_up(true))?;
        wait_ready(&self.to, &self.interface, || true)
    }

    /// Gives it back now, and says so where it is not as it was. Dropping it does the same without a word.
    ///
    /// # Errors
    ///
    /// [`Error::Link`] or [`Error::Interface`]: it is gone, another has its name, or it cannot be switched on.
    pub fn give_back(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_back, true) {
            return Ok(());
        }
        let (name, index) = (self.interface.name(), self.interface.index());
        let as_it_was = inside(&self.to, || {
            self.interface.set_up(false)?;
            self.interface.set_mtu(self.mtu)
        });
        let moved = self.to.try_run(|| configure::move_to(index, &self.home))?;
        moved.map_err(|source| configure::failed("give back an interface", &self.to, name, source))?;
        if self.up {
            inside(&self.home, || Interface::by_name(name)?.set_up(true))?;
        }
        as_it_was
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // It may be gone, with its driver.
        let _ = self.give_back();
    }
}
