//! The store: the scripts that run in it, each in one step, and what a failover leaves of it.

use super::Variant;

/// Time to live of a lease, in ticks of the store's clock.
pub(super) const TTL: u8 = 2;

/// A moment, as it is and by the clock of the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: u8,
    pub(super) clock: i8,
}

/// One run of a coordinator's process. A new one is never taken for the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Process {
    pub(super) node: u8,
    pub(super) incarnation: u8,
}

/// What a commit must show. The nonce of a released lease is nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Fence {
    pub(super) epoch: u8,
    pub(super) nonce: Option<u8>,
}

/// The lease record. It is never deleted, for the epoch would begin anew.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lease {
    pub(super) fence: Fence,
    pub(super) owner: Process,
    /// When it was taken or renewed. Others see it no earlier, and measure from then by clocks of their own.
    pub(super) since: u8,
    /// Its end by the clock of the store.
    pub(super) until: i8,
    pub(super) free: bool,
    /// Which grant it stems from. The protocol does not see it: it is what the nonce stands for.
    pub(super) grant: u8,
}

impl Lease {
    fn is_over(&self, at: Moment, variant: Variant) -> bool {
        if variant == Variant::EndByTheClockOfTheStore {
            return self.until <= at.clock;
        }
        at.now >= self.since + TTL
    }
}

/// A batch on its way or in the log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Batch {
    pub(super) id: u8,
    /// The client's request, whose reply is stored with the batch.
    pub(super) request: u8,
    pub(super) fence: Fence,
    pub(super) grant: u8,
    /// The batches that the deciding state was made of. The protocol sees their number, which is the version,
    /// and the last one.
    pub(super) base: Vec<u8>,
}

impl Batch {
    fn expected(&self) -> u8 {
        u8::try_from(self.base.len()).unwrap()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    pub(super) batch: u8,
    pub(super) request: u8,
    pub(super) version: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Committed,
    Duplicate,
    Conflict,
    Fenced,
}

/// What is written down, and what a replica has a copy of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Data {
    pub(super) lease: Option<Lease>,
    pub(super) version: u8,
    pub(super) log: Vec<Entry>,
}

impl Data {
    pub(super) fn batches(&self) -> Vec<u8> {
        self.log.iter().map(|entry| entry.batch).collect()
    }

    pub(super) fn has_request(&self, request: u8) -> bool {
        self.log.iter().any(|entry| entry.request == request)
    }

    fn last(&self) -> Option<u8> {
        self.log.last().map(|entry| entry.batch)
    }

    /// Grants the lease if it is free, over, or the same process asks again.
    pub(super) fn acquire(
        &mut self,
        at: Moment,
        owner: Process,
        grant: u8,
        variant: Variant,
    ) -> Option<Fence> {
        let open = |lease: &Lease| lease.owner == owner || lease.free || lease.is_over(at, variant);
        if self.lease.as_ref().is_some_and(|lease| !open(lease)) {
            return None;
        }
        let last = self.lease.as_ref().map_or(0, |lease| lease.fence.epoch);
        // The hybrid clock: it rises past a record that was rolled back, as long as the clock went on.
        let epoch = (last + 1).max(u8::try_from(at.clock).unwrap());
        let nonce = if variant == Variant::EpochAlone { 0 } else { grant };
        let fence = Fence { epoch, nonce: Some(nonce) };
        let until = at.clock + i8::try_from(TTL).unwrap();
        self.lease = Some(Lease { fence, owner, since: at.now, until, free: false, grant });
        Some(fence)
    }

    /// Prolongs the lease. One that is over but that nobody took may be renewed: nothing was committed since.
    pub(super) fn renew(&mut self, at: Moment, fence: Fence, variant: Variant) -> bool {
        let Some(lease) = &mut self.lease else { return false };
        let renewed = lease.fence == fence && !lease.free;
        if renewed {
            (lease.since, lease.until) = (at.now, at.clock + i8::try_from(TTL).unwrap());
        }
        renewed || variant == Variant::RenewUnfenced
    }

    /// Gives the lease back. The nonce goes with it, so that a copy of a commit that is still on its way is
    /// refused even before the next owner comes.
    pub(super) fn release(&mut self, fence: Fence, variant: Variant) {
        let Some(lease) = self.lease.as_mut().filter(|lease| lease.fence == fence) else { return };
        lease.free = true;
        if variant != Variant::ReleaseKeepsNonce {
            lease.fence.nonce = None;
        }
    }

    /// The only way to write: fence, repeat and place are checked in the same step.
    pub(super) fn commit(&mut self, batch: &Batch, variant: Variant) -> Answer {
        let fenced = self.lease.as_ref().is_none_or(|lease| lease.fence != batch.fence);
        if fenced && variant != Variant::NoFence {
            return Answer::Fenced;
        }
        if self.last() == Some(batch.id) && variant != Variant::NoBatchId {
            return Answer::Duplicate;
        }
        if !self.fits(batch, variant) {
            return Answer::Conflict;
        }
        self.version = batch.expected() + 1;
        self.log.push(Entry { batch: batch.id, request: batch.request, version: self.version });
        Answer::Committed
    }

    /// Whether the batch was decided on what is there. The version alone does not say so: after a failover
    /// that dropped commits the same number may name another state.
    fn fits(&self, batch: &Batch, variant: Variant) -> bool {
        let version = self.version == batch.expected();
        match variant {
            Variant::NoVersion => true,
            Variant::VersionAlone | Variant::NoBatchId => version,
            _ => version && self.last() == batch.base.last().copied(),
        }
    }
}

/// The server: its clock, what it has, and what its replica has of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Store {
    /// Changes with every failover and restart of the server (`run_id`, `master_replid`).
    pub(super) run: u8,
    /// How far its clock is off.
    pub(super) offset: i8,
    pub(super) primary: Data,
    pub(super) replica: Data,
}

impl Store {
    /// The replica takes over, with what it has. Gives the requests that are lost by it.
    pub(super) fn fail_over(&mut self, offset: i8) -> Vec<u8> {
        let old = std::mem::replace(&mut self.primary, self.replica.clone());
        self.run += 1;
        self.offset = offset;
        let lost = old.log.into_iter().filter(|entry| !self.primary.log.contains(entry));
        lost.map(|entry| entry.request).collect()
    }
}
