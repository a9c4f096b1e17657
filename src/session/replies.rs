//! The answers to a batch, one by one.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;

use bellwire_core::LimitOwner;
use bellwire_core::batch::{BatchView, Items};

use super::batch::decode_together;
use super::check;
use crate::{CallError, Malformed, Message, Service};

/// The answers to a batch: one for each request, in their order.
///
/// They are decoded one by one where they arrived. An item's error is boxed, so that a loop over many small answers
/// returns each in registers.
///
/// ```
/// use bellwire::Client;
#[doc = include_str!("../doc/increment_served.txt")]
/// let mut client = Client::<Increment>::new(&run_dir);
/// let answers = client.connect()?.call_batch(&[1, 2, 3])?;
/// assert_eq!(answers.filter_map(Result::ok).sum::<u64>(), 9);
/// # Ok(())
/// # }
/// ```
pub struct BatchReplies<'a, S: Service> {
    /// The remaining answers, if all are Ok and have `stride` bytes, and every request was sent.
    even: &'a [u8],
    /// Above 0.
    stride: usize,
    items_left: ItemReplies<'a>,
    left_out: Vec<OversizedItem>,
    service: PhantomData<fn(&S)>,
}

/// A request that did not fit the message after those before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct OversizedItem {
    pub(super) at: usize,
    pub(super) len: u64,
    pub(super) limit: u64,
}

/// The remaining answers to any other batch.
#[derive(Clone)]
struct ItemReplies<'a> {
    items: Items<'a>,
    /// How many answers were returned.
    given: usize,
    /// How many of those were for requests that were left out.
    unsent: usize,
}

/// The next answer.
type Next<S> = Option<Result<<S as Service>::Response, Box<CallError>>>;

impl<'a, S: Service> BatchReplies<'a, S> {
    /// Creates the answers in `view` to a batch of which some requests were left out.
    pub(super) fn new(view: &BatchView<'a>, left_out: Vec<OversizedItem>) -> Self {
        let even = view.even().filter(|_| left_out.is_empty());
        let items = if even.is_some() { Items::default() } else { view.iter() };
        let (even, stride) = even.unwrap_or((&[], 1));
        let items_left = ItemReplies { items, given: 0, unsent: 0 };
        Self { even, stride, items_left, left_out, service: PhantomData }
    }

    /// Appends the remaining answers to `values`. Cheaper than one by one if all [have the same
    /// length](Message::LEN).
    ///
    /// # Errors
    /// The error of the first failed item: the answers before it were appended, and those after it remain.
    pub fn append_to(&mut self, values: &mut Vec<S::Response>) -> Result<(), Box<CallError>> {
        if decode_together(self.even, self.stride, values) {
            self.even = &[];
        }
        for answer in self {
            values.push(answer?);
        }
        Ok(())
    }
}

impl<S: Service> Iterator for BatchReplies<'_, S> {
    type Item = Result<S::Response, Box<CallError>>;

    /// A loop keeps `self` in registers as long as no reference to it escapes, so the rare case works on a copy.
    #[inline]
    fn next(&mut self) -> Next<S> {
        if let Some((bytes, rest)) = self.even.split_at_checked(self.stride) {
            self.even = rest;
            return Some(S::Response::decode(bytes).map_err(malformed));
        }
        let (next, items_left) = self.items_left.clone().next::<S>(&self.left_out);
        self.items_left = items_left;
        next
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let items_left = self.items_left.items.len() + self.left_out.len() - self.items_left.unsent;
        let left = self.even.len() / self.stride + items_left;
        (left, Some(left))
    }
}

impl ItemReplies<'_> {
    /// Returns the next answer and the remaining ones.
    #[inline(never)]
    fn next<S: Service>(mut self, left_out: &[OversizedItem]) -> (Next<S>, Self) {
        let next_left_out = left_out.get(self.unsent).filter(|left_out| left_out.at == self.given);
        let next = if let Some(&OversizedItem { len, limit, .. }) = next_left_out {
            self.unsent += 1;
            Some(Err(CallError::TooLarge { len, limit, owner: LimitOwner::Own }.into()))
        } else {
            self.items.next().map(|item| {
                check(item.status, Some(item.bytes))?;
                S::Response::decode(item.bytes).map_err(malformed)
            })
        };
        self.given += usize::from(next.is_some());
        (next, self)
    }
}

#[cold]
fn malformed(error: Malformed) -> Box<CallError> {
    Box::new(error.into())
}

impl<S: Service> fmt::Debug for BatchReplies<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchReplies").field("left", &self.len()).finish_non_exhaustive()
    }
}

impl<S: Service> ExactSizeIterator for BatchReplies<'_, S> {}
impl<S: Service> FusedIterator for BatchReplies<'_, S> {}
