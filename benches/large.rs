//! Messages that do not fit the lane: what growing costs, what a memfd of their own costs, and how fast a stream of
//! them is.

use std::time::{Duration, Instant};

use bellwire::{CallError, Payload};

use crate::provider::{Bulk, Provider, Sum, Wait, sum, timed};
use crate::ratios::Outcome;
use bellwire_floor::attach::{self, Look};
use bellwire_floor::fresh::Pages;
use bellwire_floor::{Cpus, Prober, Ratio, bulk, handover, ns_each};

/// The send that makes a lane of 16 KiB grow, next to making, sealing and passing a region of that size. Then the
/// calls after it, next to those before.
pub fn grow(cpus: Cpus) -> Outcome {
    let cpus = cpus.two()?;
    let provider = Provider::start(cpus, Wait::SpinLong);
    let mut met = true;
    for (name, lane) in [("1 MiB", 1 << 20), ("16 MiB", 16 << 20)] {
        let mut client = provider.plain_client::<Bulk>();
        let session = client.session().ok_or("the session is gone")?;
        // The smallest request that needs that lane.
        let request = Payload::from(vec![7; lane / 4]);
        let small = Payload::from(vec![7; 64]);
        let mut floor = handover::Floor::start(cpus, lane, Pages::Small)?;
        let ratio = Ratio::new(format!("send that grows 16 KiB to {name} / bare hand-over"));
        let each = if lane > 4 << 20 { 1 } else { 8 };
        let report = ratio.target(1.5).run(
            25,
            || Ok(ns_each(floor.sent(each)?, each)),
            || {
                let mut took = Duration::ZERO;
                for _ in 0..each {
                    session.trim()?;
                    assert_eq!(session.stats().requests.size, 16 << 10);
                    let began = Instant::now();
                    session.submit(&request)?;
                    took += began.elapsed();
                    answers(session, 1);
                    assert_eq!(session.stats().requests.size, lane as u64);
                }
                Ok(ns_each(took, each))
            },
            None,
        )?;
        println!("{report}");
        met &= report.met().unwrap_or(false);
        // The calls after it.
        const CALLS: u64 = 20_000;
        let mut other = provider.plain_client::<Bulk>();
        let mut prober = Prober::start(cpus)?;
        let other = other.session().ok_or("the session is gone")?;
        other.trim()?;
        let call = |session: &mut bellwire::Session<Bulk>| {
            timed(2_000, || session.call(&small).unwrap());
            ns_each(timed(CALLS, || session.call(&small).unwrap()), CALLS)
        };
        let ratio = Ratio::new(format!("call, 64 B, lane grown to {name} / lane of 16 KiB"));
        println!("{}", ratio.run(30, || Ok(call(other)), || Ok(call(session)), Some(&mut prober))?);
    }
    Ok(met)
}

fn answers(session: &mut bellwire::Session<Bulk>, mut n: u64) {
    while n > 0 {
        if let Some((_, answer)) = session.try_reply().expect("the provider is gone") {
            answer.expect("no answer");
            n -= 1;
        }
    }
}

/// A message in a memfd of its own, next to making, filling, sealing, passing, mapping and reading the same one bare;
/// and next to the default path of messages: the crossover.
pub fn attach(cpus: Cpus) -> Outcome {
    let cpus = cpus.two()?;
    let provider = Provider::start(cpus, Wait::SpinLong);
    let mut met = true;
    for (name, size) in
        [("64 KiB", 64 << 10), ("256 KiB", 256 << 10), ("1 MiB", 1 << 20), ("16 MiB", 16 << 20)]
    {
        let mut client = provider.plain_client::<Sum>();
        let source = vec![7; size];
        let wanted = sum(&source);
        let shape = attach::Shape { size, pages: Pages::Small, look: Look::Sum };
        let mut floor = attach::Floor::start(cpus, shape)?;
        let each = ((4 << 20) / size as u64).clamp(1, 16);
        let mut attached = || {
            let call = || {
                let built = Payload::build_from(0, size, |bytes| bytes.copy_from_slice(&source));
                assert_eq!(client.call(&built.unwrap()).unwrap(), wanted);
            };
            Ok(ns_each(timed(each, call), each))
        };
        let ratio = Ratio::new(format!("attach, {name} / bare memfd, passed and read"));
        let floor = || Ok(ns_each(floor.copied(each)?, each));
        let report = ratio.target(1.2).run(25, floor, &mut attached, None)?;
        println!("{report}");
        met &= report.met().unwrap_or(false);
        let mut client = provider.plain_client::<Sum>();
        let copied = || {
            let call = || {
                let built = Payload::build(size, |bytes| bytes.copy_from_slice(&source));
                assert_eq!(client.call(&built.unwrap()).unwrap(), wanted);
            };
            Ok(ns_each(timed(each, call), each))
        };
        let ratio = Ratio::new(format!("attach, {name} / as by default"));
        println!("{}", ratio.run(15, copied, attached, None)?);
    }
    Ok(met)
}

/// A stream of large messages as the library chooses, next to the fastest plain copy.
pub fn bulk(cpus: Cpus) -> Outcome {
    let cpus = cpus.two()?;
    let provider = Provider::start(cpus, Wait::SpinLong);
    let mut prober = Prober::start(cpus)?;
    let mut met = true;
    for (name, size, n) in [("1 MiB", 1 << 20, 100), ("16 MiB", 16 << 20, 8)] {
        let mut client = provider.plain_client::<Bulk>();
        let request = Payload::from(vec![7; size]);
        let mut floor = bulk::Floor::start(cpus, bulk::Shape::new(size))?;
        let mut whole = bulk::Floor::start(cpus, bulk::Shape::whole(size))?;
        let mut stream = || {
            timed(2, || client.call(&request).unwrap());
            Ok(ns_each(timed(n, || client.call(&request).unwrap()), n))
        };
        // 0.7 of the speed.
        let ratio = Ratio::new(format!("stream, {name} / fastest plain copy")).target(1.0 / 0.7);
        let plain = || Ok(ns_each(floor.messages(n)?, n));
        let report = ratio.run(30, plain, &mut stream, Some(&mut prober))?;
        println!("{report}");
        met &= report.met().unwrap_or(false);
        let ratio = Ratio::new(format!("stream, {name} / plain copy in one piece"));
        let plain = || Ok(ns_each(whole.messages(n)?, n));
        println!("{}", ratio.run(20, plain, &mut stream, Some(&mut prober))?);
        // The same through a lane that holds them, as many in flight as go in.
        let mut client = provider.plain_client::<Bulk>();
        let session = client.session().ok_or("the session is gone")?;
        let mut pipelined = || {
            let began = Instant::now();
            let (mut sent, mut answered) = (0, 0);
            while answered < n {
                while sent < n {
                    match session.submit(&request) {
                        Ok(_) => sent += 1,
                        Err(CallError::WouldBlock) => break,
                        Err(error) => return Err(error.into()),
                    }
                }
                while let Some((_, answer)) = session.try_reply()? {
                    answer?;
                    answered += 1;
                }
            }
            Ok(ns_each(began.elapsed(), n))
        };
        let ratio = Ratio::new(format!("the same, submitted / called, {name}"));
        println!("{}", ratio.run(15, &mut stream, &mut pipelined, Some(&mut prober))?);
    }
    Ok(met)
}
