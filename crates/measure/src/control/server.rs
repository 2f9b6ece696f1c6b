//! The server's side of one connection.

use super::auth::Side;
use super::pipe::{MOST_VERSIONS, Pipe, check_nonce, to_hex};
use super::{
    ALIVE_NS, Fault, HANDSHAKE_NS, Hello, IDLE_NS, MOST_AFTER, MOST_BEFORE, MOST_SILENCE_NS, Message, Nonce, Proof,
    Ready, Refused, SESSION_STEP, SETUP_NS, SILENCE_NS, Start, Stop, Tally, Token, VERSIONS, Welcome,
};
use crate::schema::FarEnd;

/// What the server's side of a connection is made with.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// To be proven by both; `None`: anybody may come.
    pub token: Option<Token>,
    /// Drawn for this connection.
    pub nonce: Nonce,
    /// [`fingerprint`](super::fingerprint) of this side's TLS certificate, where there is TLS.
    pub binding: Option<[u8; 32]>,
}

/// What a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerEvent {
    /// It has proven who it is. With the version of its tool, as it says.
    Open(String),
    /// Open an end; to be answered by [`Server::ready`] or [`Server::refuse`].
    Start(Start),
    /// Packets will come.
    Go,
    /// How much has come? To be answered by [`Server::tally`].
    Count {
        /// Of which trial.
        session: u32,
    },
    /// What time is it? To be answered by [`Server::time`], at once.
    Ask {
        /// To be given back.
        number: u64,
    },
    /// No more packets come; to be answered by [`Server::outcome`].
    Stop(Stop),
    /// It goes. Whatever is open for it is to be closed.
    Bye,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Greeting,
    Challenged,
    Idle,
    /// Whether both sides say meanwhile that they are there.
    Starting {
        is_long: bool,
    },
    Ready,
    Running,
    Stopping,
    Gone,
}

/// The server of one control connection.
#[derive(Debug)]
pub struct Server {
    pipe: Pipe,
    state: State,
    nonce: Nonce,
    begun_ns: u64,
    /// Of the session.
    silence_ns: u64,
    client_version: String,
}

impl Server {
    /// Waits for a greeting.
    #[must_use]
    pub fn new(options: ServerOptions, now_ns: u64) -> Self {
        Self {
            pipe: Pipe::new(Side::Server, options.token, options.binding, now_ns),
            state: State::Greeting,
            nonce: options.nonce,
            begun_ns: now_ns,
            silence_ns: SILENCE_NS,
            client_version: String::new(),
        }
    }

    /// Whether the client has proven who it is.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::Greeting | State::Challenged)
    }

    /// Bytes to be sent, each once.
    #[must_use]
    pub fn take_output(&mut self) -> Vec<u8> {
        self.pipe.take_output()
    }

    /// Takes bytes that came and tells what is wanted.
    ///
    /// # Errors
    /// [`Fault`]: the connection is to be closed, after the last output.
    pub fn receive(&mut self, bytes: &[u8], now_ns: u64) -> Result<Vec<ServerEvent>, Fault> {
        self.pipe.add(bytes, now_ns);
        let mut events = Vec::new();
        loop {
            let most = if self.is_open() { MOST_AFTER } else { MOST_BEFORE };
            let next = self.pipe.next(most).and_then(|message| match message {
                Some(message) => self.take(message, now_ns).map(Some),
                None => Ok(None),
            });
            match next {
                Ok(Some(event)) => events.extend(event),
                Ok(None) => return Ok(events),
                Err(fault) => return Err(self.told(fault, now_ns)),
            }
        }
    }

    /// Tells the client what is wrong with it, where that helps.
    fn told(&mut self, fault: Fault, now_ns: u64) -> Fault {
        if let Some(why) = fault.answer() {
            let refused = Refused {
                why,
                ..Refused::default()
            };
            self.pipe.put(&Message::Refused(refused), now_ns);
        }
        self.state = State::Gone;
        fault
    }

    fn take(&mut self, message: Message, now_ns: u64) -> Result<Option<ServerEvent>, Fault> {
        Ok(Some(match (self.state, message) {
            (State::Gone, _) => return Ok(None),
            (State::Greeting, Message::Hello(hello)) => {
                self.greeted(hello, now_ns)?;
                return Ok(None);
            }
            (State::Challenged, Message::Proof(proof)) => {
                self.pipe.check(&proof.proof)?;
                let proof = Proof {
                    proof: self.pipe.prove(),
                };
                self.pipe.put(&Message::Proof(proof), now_ns);
                self.pipe.seal();
                self.state = State::Idle;
                ServerEvent::Open(std::mem::take(&mut self.client_version))
            }
            (State::Idle, Message::Start(start)) => {
                check(&start)?;
                self.silence_ns = start.silence_ns.unwrap_or(SILENCE_NS);
                self.state = State::Starting {
                    is_long: start.is_long(),
                };
                ServerEvent::Start(start)
            }
            (State::Ready, Message::Go) => {
                self.state = State::Running;
                ServerEvent::Go
            }
            (State::Running, Message::Count { session }) => ServerEvent::Count { session },
            (State::Ready | State::Running, Message::Stop(stop)) => {
                self.state = State::Stopping;
                ServerEvent::Stop(stop)
            }
            (_, Message::Ask { number }) if self.is_open() => ServerEvent::Ask { number },
            (_, Message::Alive) if self.is_open() => return Ok(None),
            (_, Message::Bye) if self.is_open() => {
                self.state = State::Gone;
                ServerEvent::Bye
            }
            (_, message) => return Err(Fault::OutOfOrder { what: message.name() }),
        }))
    }

    fn greeted(&mut self, hello: Hello, now_ns: u64) -> Result<(), Fault> {
        let Some(&version) = VERSIONS.iter().find(|version| hello.versions.contains(version)) else {
            let mut theirs = hello.versions;
            theirs.truncate(MOST_VERSIONS);
            return Err(Fault::Version { theirs });
        };
        check_nonce(&hello.nonce, &self.nonce)?;
        let welcome = Welcome {
            version,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            nonce: to_hex(&self.nonce),
            wants_token: self.pipe.has_token(),
        };
        self.pipe.put(&Message::Welcome(welcome), now_ns);
        // For people, on their terminal: nothing that could be more than text.
        self.client_version = hello
            .tool_version
            .chars()
            .filter(char::is_ascii_graphic)
            .take(32)
            .collect();
        self.state = State::Challenged;
        Ok(())
    }

    /// The client has closed the connection.
    #[must_use]
    pub fn closed(&self) -> Fault {
        self.pipe.closed()
    }

    /// Lets time pass: says that this side is there, and notices what takes too long.
    ///
    /// # Errors
    /// [`Fault::Slow`], [`Fault::Silent`]; the connection is to be closed.
    pub fn tick(&mut self, now_ns: u64) -> Result<(), Fault> {
        let quiet = now_ns.saturating_sub(self.pipe.heard_ns);
        let fault = match self.state {
            // From the first byte on, not from the last: one a second gains nobody time.
            State::Greeting | State::Challenged if now_ns.saturating_sub(self.begun_ns) > HANDSHAKE_NS => {
                Some(Fault::Slow {
                    what: "greet and prove who it is",
                    after_ns: HANDSHAKE_NS,
                })
            }
            State::Running if quiet > self.silence_ns => Some(Fault::Silent { after_ns: quiet }),
            State::Starting { is_long: true } if quiet > SETUP_NS => Some(Fault::Silent { after_ns: quiet }),
            State::Idle | State::Ready if quiet > IDLE_NS => Some(Fault::Silent { after_ns: quiet }),
            _ => None,
        };
        if let Some(fault) = fault {
            return Err(self.told(fault, now_ns));
        }
        if self.is_open() && self.state != State::Gone && now_ns.saturating_sub(self.pipe.said_ns) >= ALIVE_NS {
            self.pipe.put(&Message::Alive, now_ns);
        }
        Ok(())
    }

    /// The end is open. Nothing is said to a client that has gone meanwhile.
    ///
    /// # Panics
    /// When nobody has asked for it: a mistake of the caller's. So do the following.
    pub fn ready(&mut self, ready: Ready, now_ns: u64) {
        if self.state == State::Gone {
            return;
        }
        assert!(matches!(self.state, State::Starting { .. }), "a start was asked for");
        self.state = State::Ready;
        self.pipe.put(&Message::Ready(Box::new(ready)), now_ns);
    }

    /// No, and why. What was asked for with [`ServerEvent::Start`] is not done, and another may be asked for; during a run it
    /// is the end of the connection.
    pub fn refuse(&mut self, why: impl Into<String>, now_ns: u64) {
        self.refuse_leaving(why, Vec::new(), now_ns);
    }

    /// The same where something was done that could not be undone: a sentence each. Also to a client that has said farewell, and waits for this.
    pub fn refuse_leaving(&mut self, why: impl Into<String>, left: Vec<String>, now_ns: u64) {
        self.state = match self.state {
            State::Starting { .. } => State::Idle,
            _ => State::Gone,
        };
        let why = why.into();
        self.pipe.put(&Message::Refused(Refused { why, left }), now_ns);
    }

    /// What has come.
    pub fn tally(&mut self, tally: Tally, now_ns: u64) {
        assert!(self.is_open(), "somebody to tell");
        self.pipe.put(&Message::Tally(tally), now_ns);
    }

    /// What time it is, by the three readings of [`Message::Time`].
    pub fn time(&mut self, number: u64, monotonic_came_ns: u64, monotonic_ns: u64, realtime_ns: u64) {
        assert!(self.is_open(), "somebody to tell");
        let time = Message::Time {
            number,
            monotonic_came_ns,
            monotonic_ns,
            realtime_ns,
        };
        self.pipe.put(&time, monotonic_ns);
    }

    /// What came of the session.
    pub fn outcome(&mut self, far: FarEnd, now_ns: u64) {
        if self.state == State::Gone {
            return;
        }
        assert_eq!(self.state, State::Stopping, "a result was asked for");
        self.state = State::Idle;
        self.pipe.put(&Message::Outcome(Box::new(far)), now_ns);
    }
}

/// What no client of this version asks for.
fn check(start: &Start) -> Result<(), Fault> {
    let wrong = |why: &str| Err(Fault::Malformed { why: why.to_owned() });
    if start.session == 0 || !start.session.is_multiple_of(SESSION_STEP) {
        return wrong("the number of a session is a multiple of 4096, and not 0");
    }
    if start.rate_pps == Some(0) || start.duration_ns == Some(0) {
        return wrong("a rate or a time of 0");
    }
    if start.feedback_ns.is_some_and(|every| every < 10_000_000) {
        return wrong("feedback more than a hundred times a second");
    }
    if start.silence_ns.is_some_and(|longest| longest > MOST_SILENCE_NS) {
        return wrong("silence of more than a minute");
    }
    Ok(())
}
