//! A server's interface, lent to a client's comparison or lab: its own sockets are closed meanwhile, for a queue has one socket only. All connections of
//! one client's address may have it at the same time, for one lab has several.

use std::net::IpAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::board::Board;
use crate::stop::Stop;

/// How long closing the sockets may take.
const CLOSING: Duration = Duration::from_secs(10);
/// How long the next client waits for them to be open again, or to be closed.
const OPENING: Duration = Duration::from_secs(6);
/// How often the server looks for its end meanwhile.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The server answers.
    Own,
    /// Somebody waits for the sockets to be closed.
    Wanted,
    /// They are.
    Lent,
    /// They may be opened again, and will be.
    Back,
}

/// What of it somebody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A comparison: all of it, and nobody else compares.
    Turns,
    /// Something for a lab that takes sockets.
    Sockets,
    /// Something for a lab that is on it beside the server's own sockets.
    Beside,
}

/// Who has the interface.
pub(super) struct Lending {
    book: Mutex<Book>,
    changed: Condvar,
    /// Ends what the server does with it now.
    part: Mutex<Stop>,
    whole: Stop,
}

struct Book {
    state: State,
    /// Each by its client's address.
    by: Vec<(IpAddr, Part)>,
}

/// Part of the interface, for as long as this is there.
pub(super) struct Loan<'a> {
    lending: &'a Lending,
    client: IpAddr,
    part: Part,
}

impl Book {
    /// Whether a client may have it with those that do.
    fn check(&self, client: IpAddr, part: Part) -> Result<()> {
        for (other, theirs) in &self.by {
            let is_alone = *theirs == Part::Turns && part == Part::Turns;
            match (*other == client && !is_alone, *theirs, part) {
                (true, ..) | (_, Part::Beside, Part::Beside) => {}
                (false, Part::Beside, _) => bail!("another client's lab is under way here: try again later"),
                (false, ..) => bail!("a comparison has the interface, or has just had it: try again later"),
            }
        }
        Ok(())
    }

    fn remove(&mut self, client: IpAddr, part: Part) {
        if let Some(at) = self.by.iter().position(|one| *one == (client, part)) {
            self.by.swap_remove(at);
        }
    }
}

impl Lending {
    pub(super) fn new(whole: Stop) -> Self {
        Self {
            book: Mutex::new(Book {
                state: State::Own,
                by: Vec::new(),
            }),
            changed: Condvar::new(),
            part: Mutex::new(whole.part()),
            whole,
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, or for so long.
    fn wait<'a>(&self, book: MutexGuard<'a, Book>, most: Duration) -> MutexGuard<'a, Book> {
        match self.changed.wait_timeout(book, most) {
            Ok((book, _)) => book,
            Err(poisoned) => poisoned.into_inner().0,
        }
    }

    /// What ends the server's own use of it.
    pub(super) fn part(&self) -> Stop {
        self.part.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn borrow(&self, client: IpAddr, part: Part, board: &Board) -> Result<Loan<'_>> {
        let mut book = self.book();
        let open = Instant::now() + OPENING;
        loop {
            book.check(client, part)?;
            match book.state {
                _ if part == Part::Beside => return Ok(self.loan(&mut book, client, part)),
                State::Lent => return Ok(self.loan(&mut book, client, part)),
                State::Own => break,
                // The one before is over, and who comes next need not know that the sockets are just being opened again; or they are being closed for the
                // same client.
                State::Back | State::Wanted => {
                    ensure!(
                        Instant::now() < open,
                        "a comparison has the interface, or has just had it: try again later"
                    );
                    book = self.wait(book, LOOK);
                }
            }
        }
        if !board.is_empty() {
            bail!("sessions are under way, and a comparison takes the interface for itself: try again later");
        }
        book.state = State::Wanted;
        let loan = self.loan(&mut book, client, part);
        self.part().set();
        let end = Instant::now() + CLOSING;
        while book.state != State::Lent {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // They will be, and are opened again then.
                drop(book);
                drop(loan);
                bail!("the server's sockets were not closed in time");
            }
            book = self.wait(book, left);
        }
        Ok(loan)
    }

    fn loan(&self, book: &mut Book, client: IpAddr, part: Part) -> Loan<'_> {
        book.by.push((client, part));
        Loan {
            lending: self,
            client,
            part,
        }
    }

    /// The sockets are closed: waits until they may be opened again. False when nobody wanted them, or it is over.
    pub(super) fn lend_until_back(&self, over: impl Fn() -> bool) -> bool {
        let mut book = self.book();
        match book.state {
            State::Wanted => book.state = State::Lent,
            State::Back => {}
            State::Own | State::Lent => return false,
        }
        self.changed.notify_all();
        while book.state != State::Back {
            if over() {
                return false;
            }
            book = self.wait(book, LOOK);
        }
        *self.part.lock().unwrap_or_else(PoisonError::into_inner) = self.whole.part();
        true
    }

    /// The sockets are open again.
    pub(super) fn is_back(&self) {
        self.book().state = State::Own;
        self.changed.notify_all();
    }

    /// Whether the server's own sockets are closed.
    pub(super) fn is_lent(&self) -> bool {
        self.book().state != State::Own
    }
}

impl Drop for Loan<'_> {
    /// The last one that has sockets gives them back.
    fn drop(&mut self) {
        let mut book = self.lending.book();
        book.remove(self.client, self.part);
        let is_last = book.by.iter().all(|(_, part)| *part == Part::Beside);
        if self.part != Part::Beside && is_last {
            book.state = State::Back;
        }
        self.lending.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::thread;

    use super::*;

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

    /// With a server that lends and takes back, until `work` is done.
    fn with(work: impl FnOnce(&Lending, &Board)) {
        let whole = Stop::default();
        let (lending, board) = (Lending::new(whole.part()), Board::default());
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                while !whole.is_set() {
                    if lending.part().is_set() && lending.lend_until_back(|| whole.is_set()) {
                        lending.is_back();
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            });
            // Also when it panics: the scope would wait for ever.
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&lending, &board)));
            whole.set();
            server.join().expect("it ends");
            if let Err(panic) = ended {
                std::panic::resume_unwind(panic);
            }
        });
    }

    #[test]
    fn the_last_one_of_a_client_gives_it_back() {
        with(|lending, board| {
            let first = lending.borrow(ONE, Part::Sockets, board).expect("free");
            let turns = lending.borrow(ONE, Part::Turns, board).expect("the same client");
            drop(first);
            assert!(lending.is_lent(), "a turn is under way");
            let second = lending.borrow(ONE, Part::Sockets, board).expect("the same client");
            drop(turns);
            assert!(lending.is_lent(), "an end of a schedule is there");
            drop(second);
            // It waits until they are open again.
            drop(lending.borrow(OTHER, Part::Turns, board).expect("free"));
        });
    }

    #[test]
    fn others_wait() {
        with(|lending, board| {
            let all = [Part::Turns, Part::Sockets, Part::Beside];
            let turns = lending.borrow(ONE, Part::Turns, board).expect("free");
            for part in all {
                assert!(lending.borrow(OTHER, part, board).is_err(), "{part:?}");
            }
            // Another comparison is another one, whoever asks.
            assert!(lending.borrow(ONE, Part::Turns, board).is_err());
            let beside = lending.borrow(ONE, Part::Beside, board).expect("the same client");
            drop(turns);
            for (part, may) in all.into_iter().zip([false, false, true]) {
                assert_eq!(lending.borrow(OTHER, part, board).is_ok(), may, "{part:?}");
            }
            drop(beside);
            drop(lending.borrow(OTHER, Part::Turns, board).expect("free"));
        });
    }
}
