//! Workers that increment a counter that nothing but the lock protects.

use crate::{Driver, Result, describe, milliseconds};
use redis::{AsyncCommands, aio::MultiplexedConnection};
use std::time::{Duration, Instant};

struct Load<'a> {
    driver: &'a Driver,
    name: &'a str,
    counter: &'a str,
    end: Instant,
    ttl: Duration,
    work: Duration,
    pause: Duration,
}

#[derive(Default)]
struct Figures {
    turns: u64,
    overlaps: u64,
    longest: Duration,
    failures: Vec<String>,
}

/// Serves the request hammer, and returns the figures of its reply.
pub async fn run(driver: &Driver, arguments: &[&str]) -> Result<String> {
    let [name, counter, threads, seconds, ttl, work, pause] = arguments else {
        return Err("hammer NAME COUNTER THREADS SECONDS TTL WORK PAUSE".into());
    };
    let load = Load {
        driver,
        name,
        counter,
        end: Instant::now() + Duration::from_secs(seconds.parse()?),
        ttl: milliseconds(ttl)?,
        work: milliseconds(work)?,
        pause: milliseconds(pause)?,
    };
    let mut workers = Vec::new();
    for _ in 0..threads.parse()? {
        workers.push(load.worker(driver.redis.get_multiplexed_async_connection().await?));
    }
    let mut figures = Vec::new();
    for result in futures_util::future::join_all(workers).await {
        figures.push(result?);
    }
    Ok(sum(&figures))
}

fn sum(workers: &[Figures]) -> String {
    let turns: u64 = workers.iter().map(|worker| worker.turns).sum();
    let least = workers.iter().map(|worker| worker.turns).min().unwrap_or(0);
    let overlaps: u64 = workers.iter().map(|worker| worker.overlaps).sum();
    let longest = workers.iter().map(|worker| worker.longest.as_millis()).max().unwrap_or(0);
    let failures: Vec<&String> = workers.iter().flat_map(|worker| &worker.failures).collect();
    let last = failures.last().map(|text| format!(" {text}")).unwrap_or_default();
    format!("{turns} {least} {overlaps} {longest} {}{last}", failures.len())
}

impl Load<'_> {
    async fn worker(&self, mut redis: MultiplexedConnection) -> Result<Figures> {
        let mut figures = Figures::default();
        while Instant::now() < self.end {
            let begin = Instant::now();
            let lock = self.driver.lock(self.name, self.ttl, self.end - begin).await;
            figures.longest = figures.longest.max(begin.elapsed());
            match lock {
                Ok(None) => continue,
                Ok(Some(lock)) => {
                    if !self.turn(&mut redis).await? {
                        figures.overlaps += 1;
                    }
                    figures.turns += 1;
                    self.driver.locks.unlock(&lock).await;
                    tokio::time::sleep(self.pause.mul_f64(2.0 * rand::random::<f64>())).await;
                }
                Err(error) => {
                    figures.failures.push(describe(&error));
                    tokio::time::sleep(self.work).await;
                }
            }
        }
        Ok(figures)
    }

    /// Increments the counter, and returns whether this worker was the only one inside.
    async fn turn(&self, redis: &mut MultiplexedConnection) -> Result<bool> {
        let inside = format!("{}:inside", self.counter);
        let workers: i64 = redis.incr(&inside, 1).await?;
        let count: Option<i64> = redis.get(self.counter).await?;
        tokio::time::sleep(self.work).await;
        redis.set::<_, _, ()>(self.counter, count.unwrap_or(0) + 1).await?;
        redis.decr::<_, _, i64>(&inside, 1).await?;
        Ok(workers == 1)
    }
}
