package disk

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/chubbylock/chubby/api"
	"github.com/hashicorp/raft"
)

// sealSize is the bytes added to an entry's Extensions: the mark, the checksum.
const sealSize = 8 + crc32.Size

// readLog reads an entry and checks that it was written there.
func readLog(store raft.LogStore, index uint64, log *raft.Log) error {
	_, err := readMarked(store, index, log)
	return err
}

// readMarked is readLog, and returns the entry's commit mark.
func readMarked(store raft.LogStore, index uint64, log *raft.Log) (mark uint64, err error) {
	if err := store.GetLog(index, log); err != nil {
		return 0, err
	}
	own := len(log.Extensions) - sealSize
	if own < 0 {
		return 0, api.Errorf(api.Corrupt, "log entry %d has no checksum", index)
	}
	mark = binary.BigEndian.Uint64(log.Extensions[own:])
	sum := binary.BigEndian.Uint32(log.Extensions[own+8:])
	log.Extensions = log.Extensions[:own+8]
	if log.Index != index {
		return 0, api.Errorf(api.Corrupt, "entry %d is stored where log entry %d belongs", log.Index, index)
	}
	if logSum(log) != sum {
		return 0, api.Errorf(api.Corrupt, "log entry %d fails its checksum", index)
	}
	log.Extensions = log.Extensions[:own:own]
	if own == 0 {
		log.Extensions = nil // as Raft wrote it
	}
	return mark, nil
}

// logSum returns the checksum of an entry without one.
func logSum(log *raft.Log) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	head := make([]byte, 0, 25)
	head = binary.BigEndian.AppendUint64(head, log.Index)
	head = binary.BigEndian.AppendUint64(head, log.Term)
	head = append(head, byte(log.Type))
	head = binary.BigEndian.AppendUint64(head, uint64(len(log.Data)))
	return crc32.Update(crc32.Update(crc32.Checksum(head, table), table, log.Data), table, log.Extensions)
}
