package client

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/chubbylock/chubby/api/chubbypb"
)

// Backup writes a backup of everything the cell replicates, as of its beginning: files and their contents,
// access control lists, locks, sessions and quotas. The master goes on meanwhile. Where clients identify
// themselves, it is for operators. The backup has all contents in clear: keep it secret.
//
// If Backup fails, as when the master changes meanwhile, the output is useless: begin again. At most two
// backups run at a time.
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
