package client

import (
	"fmt"

	"github.com/chubbylock/chubby/api"
)

// parsePath checks a path, and rejects another cell's, if known: the cell called local has its own name.
func (c *Cell) parsePath(op, path string) (api.Path, error) {
	p, err := api.ParsePath(path)
	if err != nil {
		return api.Path{}, fmt.Errorf("%s: %w", op, err)
	}
	c.locator.mu.Lock()
	name := c.locator.cellName
	c.locator.mu.Unlock()
	if in := p.Cell(); in != api.LocalCell && in != c.cfg.Cell && in != name && (name != "" || c.cfg.Cell != api.LocalCell) {
		return api.Path{}, &api.Error{Code: api.WrongCell, Op: op, Path: path, Cell: c.cfg.Cell,
			Message: fmt.Sprintf("the path is in cell %s, and this client is one of cell %s; open a client for each cell", in, c.cfg.Cell)}
	}
	return p, nil
}

func rootPath(c Config) string { return "/" + api.Root + "/" + c.Cell }
