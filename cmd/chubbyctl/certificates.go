package main

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/chubbylock/chubby/client"
)

// tlsFiles returns the certificates for a cell: those that the flags name; or, of a cell that is configured nowhere, those
// that 'chubbyd dev --tls' has made in this directory. The client looks for what is not named, by the
// variables and the file of cells.
func (g *globals) tlsFiles(cell string) client.TLSFiles {
	variables := os.Getenv("CHUBBY_CACERT") + os.Getenv("CHUBBY_CERT") + os.Getenv("CHUBBY_TOKEN_FILE")
	if g.tls != (client.TLSFiles{}) || g.tokenFile != "" || variables != "" || slices.Contains(client.ConfiguredCells(), cell) {
		return g.tls
	}
	dev, _ := readDevCell(filepath.Join(".chubby", cell))
	return dev.tlsFiles()
}
