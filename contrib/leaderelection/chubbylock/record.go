package chubbylock

import (
	"encoding/json"
	"fmt"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// record is the contents of the file: client-go's record, and the proof that its author held the
// lock.
type record struct {
	resourcelock.LeaderElectionRecord
	Sequencer string `json:"sequencer,omitempty"`
}

// ParseRecord reads the contents of a lock's file, for programs that are not candidates: the record,
// and the sequencer of the leadership in which it was written. The record names a leader only if
// HolderIdentity is not empty and the cell says that the sequencer is valid
// (client.Cell.CheckSequencer). RenewTime is when the record was written, because renewals are not
// written. An empty file is NotFound, any other contents are InvalidArgument.
func ParseRecord(contents []byte) (resourcelock.LeaderElectionRecord, sequencer.Sequencer, error) {
	rec, err := decode(contents)
	if err != nil {
		return resourcelock.LeaderElectionRecord{}, sequencer.Sequencer{}, err
	}
	if rec.Sequencer == "" {
		return rec.LeaderElectionRecord, sequencer.Sequencer{}, nil
	}
	seq, err := sequencer.Parse(rec.Sequencer)
	return rec.LeaderElectionRecord, seq, err
}

func decode(contents []byte) (record, error) {
	if len(contents) == 0 {
		return record{}, api.Errorf(api.NotFound, "nobody has led yet: the file is empty")
	}
	var named struct{ HolderIdentity *string } // every record has one, which may be empty
	var rec record
	if json.Unmarshal(contents, &named) != nil || named.HolderIdentity == nil || json.Unmarshal(contents, &rec) != nil {
		return record{}, api.Errorf(api.InvalidArgument, "the file holds something else than the record of an election; choose another path, or empty the file")
	}
	return rec, nil
}

func (r record) encode() ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the record of the election: %w", err)
	}
	return text, nil
}

// vacant returns the empty record that replaces a leader's record.
func vacant(rec resourcelock.LeaderElectionRecord) resourcelock.LeaderElectionRecord {
	rec.HolderIdentity, rec.PreferredHolder = "", ""
	return rec
}

// renews reports whether a record differs from its author's last one only in its time. Such a
// record is not written.
func renews(rec, last resourcelock.LeaderElectionRecord) bool {
	return rec.HolderIdentity == last.HolderIdentity && rec.LeaseDurationSeconds == last.LeaseDurationSeconds &&
		rec.LeaderTransitions == last.LeaderTransitions && rec.AcquireTime.Equal(&last.AcquireTime) &&
		rec.Strategy == last.Strategy && rec.PreferredHolder == last.PreferredHolder
}
