package chubbystorage

// SetChunk has a Storage write chunks of so many bytes, so that tests need less of them.
func (s *Storage) SetChunk(size int) { s.chunk = size }
