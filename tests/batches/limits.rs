//! How many items a batch may have.

use bellwire::{CallError, ErrorKind, Executed, ServerBuilder, ServerConfig};

use super::{Doubler, Setup, double, in_short};
use crate::support::test_server::client_config;

const MOST: usize = 4;

fn setups() -> impl Iterator<Item = Setup> {
    let styles: [fn(&mut ServerBuilder); 2] = [
        |builder| {
            builder.serve::<Doubler>(|_, number| double(number)).unwrap();
        },
        |builder| {
            let whole = |batch: &[u64], answers: &mut bellwire::BatchAnswers<'_, _>| {
                answers.extend(batch.iter().map(|number| double(*number).unwrap()));
            };
            builder
                .serve_batches::<Doubler>(move |_, batch, answers| whole(batch, answers))
                .unwrap();
        },
    ];
    let all = styles.into_iter().flat_map(|style| [(style, 0), (style, 1)]);
    all.map(|(style, workers)| {
        let config = ServerConfig::default().workers(workers).max_batch(MOST);
        Setup::with(config, client_config(), style)
    })
}

#[test]
fn a_batch_above_the_providers_limit_is_not_sent_and_the_error_has_the_limit() {
    for mut setup in setups() {
        let session = setup.session();
        assert_eq!(session.max_batch(), MOST);
        let numbers: Vec<u64> = (0..11).collect();
        let limit = MOST as u64;
        for items in [5, 11] {
            let error = session.call_batch(&numbers[..items]).unwrap_err();
            assert_eq!((error.kind(), error.executed()), (ErrorKind::TooLarge, Executed::No));
            let reported = error.to_string();
            assert!(
                reported.contains(&items.to_string()) && reported.contains("at most 4"),
                "{reported}"
            );
            let wanted = items as u64;
            assert!(matches!(error, CallError::TooManyItems { items, limit: reported }
                if (items, reported) == (wanted, limit)));
        }
        // An iterator that does not know its length beforehand.
        let error = session.submit_batch(numbers.iter().filter(|_| true)).unwrap_err();
        assert!(matches!(error, CallError::TooManyItems { items: 11, .. }), "{error}");
        assert_eq!((session.stats().made, session.stats().unsent), (0, 3));
        let mut answers = Vec::new();
        for chunk in numbers.chunks(session.max_batch()) {
            answers.extend(in_short(session.call_batch(chunk).unwrap()));
        }
        assert_eq!(answers, (0..11).map(|number| Ok(2 * number)).collect::<Vec<_>>());
        assert_eq!(session.stats().made, 3);
    }
}
