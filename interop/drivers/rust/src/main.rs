//! Drives rslock by the protocol of ../README.md. Its parameters: LIBRARY REDIS_URL.

mod hammer;

use rslock::{Lock, LockError, LockManager};
use std::{
    collections::HashMap,
    error::Error,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

struct Driver {
    /// With the retries of the library: three tries, and up to 200 ms between them.
    locks: LockManager,
    redis: redis::Client,
    held: Mutex<HashMap<String, Lock>>, // by handle
    handles: AtomicU64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [library, url] = arguments.as_slice() else {
        return Err("usage: dibs-interop-driver LIBRARY REDIS_URL".into());
    };
    if library != "rslock" {
        return Err(format!("unknown library {library}").into());
    }
    let driver = Arc::new(Driver {
        locks: LockManager::new(vec![url.as_str()]),
        redis: redis::Client::open(url.as_str())?,
        held: Mutex::default(),
        handles: AtomicU64::new(1),
    });
    let mut requests = BufReader::new(stdin()).lines();
    while let Some(line) = requests.next_line().await? {
        tokio::spawn(answer(driver.clone(), line));
    }
    std::process::exit(0) // without waiting for the requests: nobody reads the replies any more
}

async fn answer(driver: Arc<Driver>, line: String) {
    let words: Vec<&str> = line.split(' ').collect();
    let reply = match driver.serve(&words).await {
        Ok(reply) => reply,
        Err(error) => format!("error {}", describe(&error)),
    };
    println!("{} {reply}", words[0]); // locks the output for the whole line
}

/// The text of an error, as one short line.
fn describe(error: &impl ToString) -> String {
    let text = error.to_string();
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(1000).collect()
}

impl Driver {
    async fn serve(&self, words: &[&str]) -> Result<String> {
        Ok(match words {
            [_, "describe", name] => format!("ok {name} {} Rust {}", version(), env!("RUSTC_VERSION")),
            [_, "try", name, ttl] => self.reply(self.try_lock(name, milliseconds(ttl)?).await?)?,
            [_, "lock", name, ttl, wait] => {
                self.reply(self.lock(name, milliseconds(ttl)?, milliseconds(wait)?).await?)?
            }
            [_, "extend", handle, ttl] => self.extend(handle, milliseconds(ttl)?).await?.into(),
            [_, "unlock", handle] => {
                self.locks.unlock(&self.take(handle)?).await; // does not report whether the lock was held
                "unreported".into()
            }
            [_, "force", _] => "unsupported".into(),
            [_, "hammer", arguments @ ..] => format!("ok {}", hammer::run(self, arguments).await?),
            _ => return Err("unknown request".into()),
        })
    }

    /// Acquires a free lock.
    async fn try_lock(&self, name: &str, ttl: Duration) -> Result<Option<Lock>> {
        let mut once = self.locks.clone();
        once.set_retry(1, Duration::from_millis(1));
        available(once.lock(name, ttl).await)
    }

    /// Acquires a lock within the wait, except that the last try may take longer.
    async fn lock(&self, name: &str, ttl: Duration, wait: Duration) -> Result<Option<Lock>> {
        let begin = Instant::now();
        loop {
            let lock = available(self.locks.lock(name, ttl).await)?;
            if lock.is_some() || begin.elapsed() >= wait {
                return Ok(lock);
            }
        }
    }

    fn reply(&self, lock: Option<Lock>) -> Result<String> {
        let Some(lock) = lock else { return Ok("busy".into()) };
        let value: String = lock.val.iter().map(|byte| format!("%{byte:02X}")).collect();
        let handle = self.handles.fetch_add(1, Ordering::Relaxed).to_string();
        self.held.lock().unwrap().insert(handle.clone(), lock);
        Ok(format!("ok {handle} {value}"))
    }

    fn take(&self, handle: &str) -> Result<Lock> {
        self.held.lock().unwrap().remove(handle).ok_or_else(|| "unknown handle".into())
    }

    async fn extend(&self, handle: &str, ttl: Duration) -> Result<&'static str> {
        let lock = self.take(handle)?;
        let mut once = self.locks.clone();
        once.set_retry(1, Duration::from_millis(1));
        let extended = available(once.extend(&lock, ttl).await)?;
        let outcome = if extended.is_some() { "ok" } else { "lost" };
        self.held.lock().unwrap().insert(handle.into(), extended.unwrap_or(lock));
        Ok(outcome)
    }
}

/// rslock reports a held lock and an unreachable server alike.
fn available(result: std::result::Result<Lock, LockError>) -> Result<Option<Lock>> {
    match result {
        Ok(lock) => Ok(Some(lock)),
        Err(LockError::Unavailable) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn milliseconds(text: &str) -> Result<Duration> {
    Ok(Duration::from_millis(text.parse()?))
}

/// The installed version of rslock.
fn version() -> &'static str {
    let packages = include_str!("../Cargo.lock");
    let (_, rslock) = packages.split_once("name = \"rslock\"\nversion = \"").expect("rslock is locked");
    rslock.split('"').next().expect("a version")
}
