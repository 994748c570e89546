package wire

import (
	"context"

	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
)

func (s *service) Backup(ctx context.Context, q *pb.BackupRequest) (*pb.BackupReply, error) {
	return onMaster(s, "backup", "", func(m *master.Master) (*pb.BackupReply, error) {
		if err := s.checkCell(q.GetCell()); err != nil {
			return nil, err
		}
		part, err := m.Inspector.Backups.Read(ctx, principalOf(ctx), q.GetBackup(), q.GetPart())
		return &pb.BackupReply{Data: part.Data, Last: part.Last}, err
	})
}
