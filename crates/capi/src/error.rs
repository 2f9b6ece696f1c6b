//! Codes that C gets, and the text behind the last one.

use std::any::Any;
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int};
use std::io::ErrorKind;

use ringside_xsk::hints::{BtfError, LayoutError};

/// What a call that failed returns. All are negative; what succeeds returns 0, or a number of something.
/// rsd_last_error() has the whole story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum rsd_error {
    /// It went well.
    RSD_OK = 0,
    /// An argument is NULL or makes no sense, or an option has a value that it cannot have.
    RSD_EINVAL = -1,
    /// The handle was closed, or never was one, or is one of something else.
    RSD_ECLOSED = -2,
    /// Another thread is in a call with the same handle. Nothing was done.
    RSD_EBUSY = -3,
    /// The packet belongs to a burst that has ended, or was sent or freed before. Nothing was done.
    RSD_ESTALE = -4,
    /// The packet is of another queue, or of another queue's memory. Nothing was done.
    RSD_EQUEUE = -5,
    /// A burst is open on the queue: end it first, with rsd_finish() or rsd_finish_all().
    RSD_EOPEN = -6,
    /// There are no hints in front of the packet. No text is kept for it.
    RSD_ENOHINTS = -7,
    /// In front of the packet are hints of another struct. No text is kept for it.
    RSD_EOTHER = -8,
    /// What is to be read has another size than where it is to go.
    RSD_ESIZE = -9,
    /// There is no such interface, queue, file, struct or field.
    RSD_ENOENT = -10,
    /// A capability is missing.
    RSD_EPERM = -11,
    /// The kernel cannot do it.
    RSD_ENOTSUP = -12,
    /// The interface's queue is another socket's, or its XDP program another one.
    RSD_EINUSE = -13,
    /// The mode that was required cannot be had.
    RSD_EMODE = -14,
    /// There is too little memory, or a limit of it is too low.
    RSD_ENOMEM = -15,
    /// The XDP program cannot be loaded or attached.
    RSD_EPROG = -16,
    /// The bytes are no BTF, or the struct is none of hints.
    RSD_EBTF = -17,
    /// The link is down and takes nothing; it may come up again. What is on the TX ring waits for
    /// that; the text says how many packets of the call were dropped instead.
    RSD_EDOWN = -18,
    /// The interface was removed or moved. rsd_port_reopen() opens the one that has its name then.
    RSD_EGONE = -19,
    /// The driver or the peer takes no packets any more: nothing has moved for the stall time.
    RSD_ESTALL = -20,
    /// Shared memory broke the protocol of the rings. The port can only be closed.
    RSD_EPOISON = -21,
    /// A system call failed in another way.
    RSD_ESYS = -22,
    /// There are as many handles or kept packets as there can be.
    RSD_EFULL = -23,
    /// A fault of the library itself. The handle can only be closed; please report it.
    RSD_EFAULT = -24,
    /// The port was opened before fork() or daemon(), by the parent of this process. Nothing was
    /// done. Open another one.
    RSD_EFORKED = -25,
}

use rsd_error as Code;

impl rsd_error {
    /// Name and meaning.
    fn text(code: c_int) -> &'static CStr {
        match code {
            0 => c"RSD_OK: it went well",
            -1 => c"RSD_EINVAL: an argument or an option that cannot be",
            -2 => c"RSD_ECLOSED: a handle that was closed, or never was one",
            -3 => c"RSD_EBUSY: another thread is in a call with the same handle",
            -4 => c"RSD_ESTALE: a packet that was given back before",
            -5 => c"RSD_EQUEUE: a packet of another queue",
            -6 => c"RSD_EOPEN: a burst is open on the queue",
            -7 => c"RSD_ENOHINTS: no hints in front of the packet",
            -8 => c"RSD_EOTHER: hints of another struct",
            -9 => c"RSD_ESIZE: another size than the field's",
            -10 => c"RSD_ENOENT: no such interface, queue, file, struct or field",
            -11 => c"RSD_EPERM: a capability is missing",
            -12 => c"RSD_ENOTSUP: the kernel cannot do it",
            -13 => c"RSD_EINUSE: the queue or the interface is in use",
            -14 => c"RSD_EMODE: the mode cannot be had",
            -15 => c"RSD_ENOMEM: too little memory, or too low a limit",
            -16 => c"RSD_EPROG: the XDP program cannot be loaded or attached",
            -17 => c"RSD_EBTF: no BTF, or no struct of hints",
            -18 => c"RSD_EDOWN: the link is down",
            -19 => c"RSD_EGONE: the interface is gone",
            -20 => c"RSD_ESTALL: nothing moves",
            -21 => c"RSD_EPOISON: shared memory broke the protocol",
            -22 => c"RSD_ESYS: a system call failed",
            -23 => c"RSD_EFULL: too many handles or kept packets",
            -24 => c"RSD_EFAULT: a fault of the library",
            -25 => c"RSD_EFORKED: a port of the parent of this process",
            _ => c"no code of libringside",
        }
    }
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    text: Cow<'static, str>,
}

impl Failure {
    #[cold]
    pub(crate) fn new(code: Code, text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }

    #[cold]
    pub(crate) fn invalid(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::RSD_EINVAL, text)
    }

    /// Of a panic.
    #[cold]
    pub(crate) fn internal(panic: &(dyn Any + Send)) -> Self {
        let what = (panic.downcast_ref::<&str>().copied())
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("of an unknown kind");
        Self::new(
            Code::RSD_EFAULT,
            format!("a fault of the library, please report it: {what}"),
        )
    }

    /// Keeps the text for rsd_last_error(), and is the code.
    #[cold]
    pub(crate) fn tell(self) -> c_int {
        // In a thread that is ending there is nobody to ask for it.
        _ = LAST.try_with(|last| {
            if let Ok(mut last) = last.try_borrow_mut() {
                last.clear();
                last.extend(self.text.bytes().filter(|&byte| byte != 0));
                last.push(0);
            }
        });
        self.code as c_int
    }
}

thread_local! {
    /// The text of the last failure, with a NUL at its end; empty at first.
    static LAST: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What the last call of this thread that failed had to say: what was tried, on which interface and queue, and what to do.
/// Never NULL, empty if none has failed so far. Valid until the next call of this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn rsd_last_error() -> *const c_char {
    let text = LAST.try_with(|last| Some(last.try_borrow().ok()?.first()? as *const u8));
    text.ok().flatten().map_or(c"".as_ptr(), <*const u8>::cast)
}

/// Name and meaning of a code, for people. Never NULL, valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn rsd_strerror(code: c_int) -> *const c_char {
    Code::text(code).as_ptr()
}

/// The library's version, such as "0.1.0". Valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn rsd_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

impl From<ringside_xsk::Error> for Failure {
    #[cold]
    fn from(error: ringside_xsk::Error) -> Self {
        use ringside_xsk::Error;
        let code = match &error {
            Error::Setting { .. } | Error::MtuTooLarge { .. } => Code::RSD_EINVAL,
            Error::Interface(error) => return Self::new(of_nic(error), error.to_string()),
            Error::NoSuchQueue { .. } => Code::RSD_ENOENT,
            Error::InterfaceDown { .. } | Error::LinkDown { .. } => Code::RSD_EDOWN,
            Error::LinkGone { .. } => Code::RSD_EGONE,
            Error::Memory { .. } => Code::RSD_ENOMEM,
            Error::Permission { .. } => Code::RSD_EPERM,
            Error::Unsupported { .. } => Code::RSD_ENOTSUP,
            Error::ProgramAttached { .. } | Error::QueueBusy { .. } => Code::RSD_EINUSE,
            Error::Load { .. } | Error::Attach { .. } => Code::RSD_EPROG,
            Error::Mode { .. } => Code::RSD_EMODE,
            Error::NoProgress { .. } => Code::RSD_ESTALL,
            Error::Poisoned { .. } => Code::RSD_EPOISON,
            Error::Forked { .. } => Code::RSD_EFORKED,
            _ => Code::RSD_ESYS,
        };
        Self::new(code, error.to_string())
    }
}

fn of_nic(error: &ringside_nic::Error) -> Code {
    match error {
        ringside_nic::Error::UnknownInterface { .. } | ringside_nic::Error::UnknownIndex { .. } => Code::RSD_ENOENT,
        _ => Code::RSD_ESYS,
    }
}

impl From<ringside_nic::Error> for Failure {
    #[cold]
    fn from(error: ringside_nic::Error) -> Self {
        Self::new(of_nic(&error), error.to_string())
    }
}

impl From<ringside_bpf::Error> for Failure {
    #[cold]
    fn from(error: ringside_bpf::Error) -> Self {
        use ringside_bpf::Error;
        let code = match &error {
            Error::ReadFile { source, .. } => match source.kind() {
                ErrorKind::NotFound => Code::RSD_ENOENT,
                _ => Code::RSD_ESYS,
            },
            _ => Code::RSD_EPROG,
        };
        Self::new(code, error.to_string())
    }
}

impl From<BtfError> for Failure {
    #[cold]
    fn from(error: BtfError) -> Self {
        let code = match &error {
            BtfError::File { .. } => Code::RSD_ENOENT,
            _ => Code::RSD_EBTF,
        };
        Self::new(code, error.to_string())
    }
}

impl From<LayoutError> for Failure {
    #[cold]
    fn from(error: LayoutError) -> Self {
        let code = match &error {
            LayoutError::UnknownStruct { .. } | LayoutError::UnknownField { .. } => Code::RSD_ENOENT,
            _ => Code::RSD_EBTF,
        };
        Self::new(code, error.to_string())
    }
}
