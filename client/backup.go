package client

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/chubbylock/chubby/api/chubbypb"
)

// Backup writes a backup of everything that the cell replicates, as it is when Backup begins: files with their
// contents, access control lists, locks, sessions and quotas. The master goes on meanwhile. Where clients have to say who they are, it is
// for operators. What is written has all contents as they are: keep it as secret as they are.
//
// If it fails, what was written is a part of a backup, and of no use: begin again. So it is when the master changes meanwhile.
// At most two backups are taken at a time.
func (c *Cell) Backup(ctx context.Context, w io.Writer) error {
	const op = "take a backup"
	backup := rand.Uint64()
	for part := uint64(1); ; part++ {
		var reply *chubbypb.BackupReply
		err := c.ask(ctx, op, rootPath(c.cfg), func(ctx context.Context, t *target) (err error) {
			reply, err = t.data.chubby.Backup(ctx, &chubbypb.BackupRequest{Cell: c.cfg.Cell, Backup: backup, Part: part})
			return err
		})
		if err != nil {
			return err
		}
		if _, err := w.Write(reply.GetData()); err != nil {
			return fmt.Errorf("write a backup: %w", err)
		}
		if reply.GetLast() {
			return nil
		}
	}
}
