package cell

import "github.com/chubbylock/chubby/cell/internal/identity"

// ErrRefused is in the chain of every error of a replica that must not run on the data
// directory it has: the directory is empty, has lost data or is damaged, or belongs to
// another replica or cell. Starting the replica again does not help; an operator has to
// look.
var ErrRefused = identity.ErrRefused

// newerData is the refusal of a replica that is to follow what a newer version
// wrote.
func newerData(id string, err error) error {
	return identity.Refused("replica %s is of version %s and cannot follow its cell: %v. Nothing is damaged. Start this replica with the version that the master has: "+
		"it catches up by itself. Once the upgrade of a cell is finished (chubbyctl cell upgrade finish), no replica can go back", id, Version(), err)
}

// unreleasedData is the refusal of a replica that has data of before the first release.
func unreleasedData(id, data string, err error) error {
	return identity.Refused("replica %s cannot use the data in %s: %v. Bootstrap the cell anew, with an empty data directory for every replica", id, data, err)
}
