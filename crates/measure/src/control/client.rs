//! The client's side.

use super::auth::Side;
use super::pipe::{Pipe, check_nonce, to_hex};
use super::{
    ALIVE_NS, BOOT_NS, Fault, HANDSHAKE_NS, Hello, MOST_BEFORE, MOST_FROM_SERVER, Message, Nonce, Proof, Ready,
    SETUP_NS, SILENCE_NS, Start, Stop, Tally, Token, VERSIONS, Welcome,
};
use crate::schema::FarEnd;

/// What a client is made with.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// To be proven by both; `None` where the server asks for none.
    pub token: Option<Token>,
    /// Drawn for this connection.
    pub nonce: Nonce,
    /// [`fingerprint`](super::fingerprint) of the server's TLS certificate, as this side saw it.
    pub binding: Option<[u8; 32]>,
}

/// What came from the server.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    /// Both have proven who they are.
    Open,
    /// Its end is open.
    Ready(Box<Ready>),
    /// It does not do what it was asked for. The connection is as before.
    Refused(String),
    /// What has come there so far.
    Tally(Tally),
    /// What time it is there: number of the question, and [`Message::Time`]'s times.
    Time {
        /// That of the question.
        number: u64,
        /// When the question was read.
        monotonic_came_ns: u64,
        /// When the answer was written.
        monotonic_ns: u64,
        /// The same by `CLOCK_REALTIME`.
        realtime_ns: u64,
    },
    /// What came of the session there.
    Outcome(Box<FarEnd>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Greeting,
    Proving,
    Idle,
    Starting { since_ns: u64, is_long: bool },
    Ready,
    Running,
    Stopping { since_ns: u64 },
}

/// The client of a control connection.
#[derive(Debug)]
pub struct Client {
    pipe: Pipe,
    state: State,
    nonce: Nonce,
    begun_ns: u64,
    /// Of the session.
    silence_ns: u64,
    server_version: String,
    /// By refusals.
    left: Vec<String>,
}

impl Client {
    /// Says hello.
    #[must_use]
    pub fn new(options: ClientOptions, now_ns: u64) -> Self {
        let mut pipe = Pipe::new(Side::Client, options.token, options.binding, now_ns);
        let hello = Hello {
            versions: VERSIONS.to_vec(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            nonce: to_hex(&options.nonce),
        };
        pipe.put(&Message::Hello(hello), now_ns);
        Self {
            pipe,
            state: State::Greeting,
            nonce: options.nonce,
            begun_ns: now_ns,
            silence_ns: SILENCE_NS,
            server_version: String::new(),
            left: Vec::new(),
        }
    }

    /// Whether both have proven who they are.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::Greeting | State::Proving)
    }

    /// Version of the server's tool, as it says.
    #[must_use]
    pub fn server_version(&self) -> &str {
        &self.server_version
    }

    /// Bytes to be sent, each once.
    #[must_use]
    pub fn take_output(&mut self) -> Vec<u8> {
        self.pipe.take_output()
    }

    /// Takes bytes that came and tells what they mean.
    ///
    /// # Errors
    /// [`Fault`]: the connection is of no use any more.
    pub fn receive(&mut self, bytes: &[u8], now_ns: u64) -> Result<Vec<ClientEvent>, Fault> {
        self.pipe.add(bytes, now_ns);
        let mut events = Vec::new();
        loop {
            let most = if self.is_open() { MOST_FROM_SERVER } else { MOST_BEFORE };
            let Some(message) = self.pipe.next(most)? else {
                return Ok(events);
            };
            events.extend(self.take(message, now_ns)?);
        }
    }

    fn take(&mut self, mut message: Message, now_ns: u64) -> Result<Option<ClientEvent>, Fault> {
        if let Message::Refused(refused) = &mut message {
            self.left.append(&mut refused.left);
        }
        Ok(Some(match (self.state, message) {
            (State::Greeting, Message::Welcome(welcome)) => {
                self.welcomed(&welcome, now_ns)?;
                return Ok(None);
            }
            (State::Proving, Message::Proof(proof)) => {
                self.pipe.check(&proof.proof)?;
                self.pipe.seal();
                self.state = State::Idle;
                ClientEvent::Open
            }
            (State::Starting { .. }, Message::Ready(ready)) => {
                self.state = State::Ready;
                ClientEvent::Ready(ready)
            }
            (State::Starting { .. }, Message::Refused(refused)) => {
                self.state = State::Idle;
                ClientEvent::Refused(refused.why)
            }
            (_, Message::Refused(refused)) => return Err(Fault::Refused { why: refused.why }),
            (State::Running | State::Stopping { .. }, Message::Tally(tally)) => ClientEvent::Tally(tally),
            (State::Stopping { .. }, Message::Outcome(far)) => {
                self.state = State::Idle;
                ClientEvent::Outcome(far)
            }
            (
                _,
                Message::Time {
                    number,
                    monotonic_came_ns,
                    monotonic_ns,
                    realtime_ns,
                },
            ) if self.is_open() => ClientEvent::Time {
                number,
                monotonic_came_ns,
                monotonic_ns,
                realtime_ns,
            },
            (_, Message::Alive) if self.is_open() => return Ok(None),
            (_, message) => return Err(Fault::OutOfOrder { what: message.name() }),
        }))
    }

    fn welcomed(&mut self, welcome: &Welcome, now_ns: u64) -> Result<(), Fault> {
        if !VERSIONS.contains(&welcome.version) {
            return Err(Fault::Version {
                theirs: vec![welcome.version],
            });
        }
        check_nonce(&welcome.nonce, &self.nonce)?;
        match (welcome.wants_token, self.pipe.has_token()) {
            (true, false) => return Err(Fault::TokenMissing),
            (false, true) => return Err(Fault::TokenNotAsked),
            _ => {}
        }
        welcome.tool_version.clone_into(&mut self.server_version);
        let proof = Proof {
            proof: self.pipe.prove(),
        };
        self.pipe.put(&Message::Proof(proof), now_ns);
        self.state = State::Proving;
        Ok(())
    }

    /// What the server could not undo of what it did for this client, a sentence each, where it has told so without a result: each once.
    #[must_use]
    pub fn take_left(&mut self) -> Vec<String> {
        std::mem::take(&mut self.left)
    }

    /// The server has closed the connection.
    #[must_use]
    pub fn closed(&self) -> Fault {
        self.pipe.closed()
    }

    /// Lets time pass: says that this side is there, and notices what takes too long.
    ///
    /// # Errors
    /// [`Fault::Slow`], [`Fault::Silent`].
    pub fn tick(&mut self, now_ns: u64) -> Result<(), Fault> {
        let since = |then: u64| now_ns.saturating_sub(then);
        let slow = |what, after_ns| Err(Fault::Slow { what, after_ns });
        match self.state {
            State::Greeting | State::Proving if since(self.begun_ns) > HANDSHAKE_NS => {
                return slow("answer the greeting as `ringside serve` does", HANDSHAKE_NS);
            }
            State::Starting { since_ns, is_long } => {
                let most_ns = if is_long { BOOT_NS } else { SETUP_NS };
                if since(since_ns) > most_ns {
                    return slow("open its end", most_ns);
                }
                if is_long && since(self.pipe.heard_ns) > SETUP_NS {
                    return Err(Fault::Silent {
                        after_ns: since(self.pipe.heard_ns),
                    });
                }
            }
            State::Stopping { since_ns } if since(since_ns) > SETUP_NS / 2 => {
                return slow("tell its result", SETUP_NS / 2);
            }
            State::Running if since(self.pipe.heard_ns) > self.silence_ns => {
                return Err(Fault::Silent {
                    after_ns: since(self.pipe.heard_ns),
                });
            }
            _ => {}
        }
        if self.is_open() && since(self.pipe.said_ns) >= ALIVE_NS {
            self.pipe.put(&Message::Alive, now_ns);
        }
        Ok(())
    }

    /// How long nothing has come from the server, which says that it is there four times a second.
    #[must_use]
    pub fn quiet_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.pipe.heard_ns)
    }

    /// Asks the server to open its end.
    ///
    /// # Panics
    /// Before the connection is open, and with a session under way: a mistake of the caller's. So do the following.
    pub fn start(&mut self, start: Start, now_ns: u64) {
        assert_eq!(self.state, State::Idle, "one session at a time");
        self.state = State::Starting {
            since_ns: now_ns,
            is_long: start.is_long(),
        };
        self.pipe.heard_ns = now_ns;
        self.silence_ns = start.silence_ns.unwrap_or(SILENCE_NS);
        self.pipe.put(&Message::Start(start), now_ns);
    }

    /// Packets will come.
    pub fn go(&mut self, now_ns: u64) {
        assert_eq!(self.state, State::Ready, "the far end is ready");
        self.state = State::Running;
        self.pipe.heard_ns = now_ns;
        self.pipe.put(&Message::Go, now_ns);
    }

    /// No more packets will come.
    pub fn stop(&mut self, stop: Stop, now_ns: u64) {
        assert!(
            matches!(self.state, State::Running | State::Ready),
            "there is a session"
        );
        self.state = State::Stopping { since_ns: now_ns };
        self.pipe.put(&Message::Stop(stop), now_ns);
    }

    /// How much of a session, or of a trial of it, has come?
    pub fn count(&mut self, session: u32, now_ns: u64) {
        assert_eq!(self.state, State::Running, "there is something to count");
        self.pipe.put(&Message::Count { session }, now_ns);
    }

    /// What time is it there?
    pub fn ask(&mut self, number: u64, now_ns: u64) {
        assert!(self.is_open(), "somebody to ask");
        self.pipe.put(&Message::Ask { number }, now_ns);
    }

    /// That is all.
    pub fn bye(&mut self, now_ns: u64) {
        if self.is_open() {
            self.pipe.put(&Message::Bye, now_ns);
        }
    }
}
