package wire

import (
	"bytes"
	"context"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
)

// Debug is served by every replica, so that a cell without a master can be asked. Each replica decides who is
// an operator by the log that it has applied, so one that is cut off may still serve a former operator.
func (s *service) Debug(ctx context.Context, q *pb.DebugRequest) (*pb.DebugReply, error) {
	operator, err := s.principalAs(ctx, q.GetAs())
	var text []byte
	if err == nil {
		text, err = s.cfg.Replica.Debug(operator, q.GetPart())
	}
	if err != nil {
		return nil, s.fail("debug", err)
	}
	last := lastLines(text, api.MaxPageBytes)
	return &pb.DebugReply{Text: last, Cut: len(last) < len(text)}, nil
}

func lastLines(text []byte, most int) []byte {
	if len(text) <= most {
		return text
	}
	text = text[len(text)-most:]
	return text[bytes.IndexByte(text, '\n')+1:]
}
