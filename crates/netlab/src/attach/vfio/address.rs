//! Addresses of PCI devices.

use std::fmt;
use std::str::FromStr;

/// Where a PCI device is: domain, bus, device, function. Written 0000:3b:00.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

/// What is no address of a PCI device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is no address of a PCI device: 0000:3b:00.1 is one, and 3b:00.1 the same (lspci -D lists them)")]
pub struct ParsePciAddressError {
    text: String,
}

impl FromStr for PciAddress {
    type Err = ParsePciAddressError;

    /// With or without the domain, as `lspci` prints them.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || -> Option<Self> {
            let (place, function) = text.split_once('.')?;
            let (rest, device) = place.rsplit_once(':')?;
            let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
            // The lengths that the kernel writes, and no signs.
            let hex = |digits: &str, most: usize| {
                let valid = (1..=most).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                valid.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
            };
            let [bus, device, function] = [hex(bus, 2)?, hex(device, 2)?, hex(function, 1)?];
            // PCI Local Bus Specification 3.0, 3.2.2.3: five bits, and three.
            (device < 32 && function < 8).then_some(Self {
                domain: hex(domain, 8)?,
                bus: bus.try_into().ok()?,
                device: device.try_into().ok()?,
                function: function.try_into().ok()?,
            })
        };
        parse().ok_or_else(|| ParsePciAddressError { text: text.to_owned() })
    }
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
