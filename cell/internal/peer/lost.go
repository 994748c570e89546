package peer

import "github.com/chubbylock/chubby/cell/internal/identity"

// lostData returns the error of a replica whose data directory is not the one that others know under its ID.
func lostData(id, by, cellID string) error {
	return identity.Refused("replica %s lost its data: replica %s knows another data directory under this ID, in the cell with the id %.12s. "+
		"That directory has voted and acknowledged entries that this one does not have, so this one must not vote. "+
		"If it still exists, start the replica with it. Otherwise %s", id, by, cellID, identity.LossAdvice)
}

func hasLeft(id, cellID string) error {
	return identity.Refused("replica %s was removed from the cell with the id %.12s (chubbyctl cell remove, or cell replace), and its ID is never used again there. "+
		"Its data directory is not needed any more: stop starting it", id, cellID)
}

// lostEntries returns the error of a replica whose data directory holds less than another knows it to have held.
func lostEntries(id string, last uint64, by string, held uint64) error {
	return identity.Refused("replica %s lost entries: replica %s knows that it held all entries up to %d, and its data directory ends at %d. "+
		"It was restored from an old copy, or the disk lost what it had reported as written. It must not vote: %s", id, by, held, last, identity.LossAdvice)
}
