package cell

import "github.com/chubbylock/chubby/cell/internal/identity"

// ErrRefused is in the error chain when a replica must not run on its data directory: it is empty, damaged,
// incomplete, or of another replica or cell. A restart does not help; an operator has to act.
var ErrRefused = identity.ErrRefused

// newerData returns the refusal of data that a newer version wrote.
func newerData(id string, err error) error {
	return identity.Refused("replica %s is of version %s and cannot follow its cell: %v. Nothing is damaged. Start this replica with the version that the master has: "+
		"it catches up by itself. Once the upgrade of a cell is finished (chubbyctl cell upgrade finish), no replica can go back", id, Version(), err)
}

// unreleasedData returns the refusal of data from before the first release.
func unreleasedData(id, data string, err error) error {
	return identity.Refused("replica %s cannot use the data in %s: %v. Bootstrap the cell anew, with an empty data directory for every replica", id, data, err)
}
