package embedded

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/store"
)

// How files are written. A page is what a look-up has to unpack, in each column.
const (
	pageBytes    = 16 << 10
	groupRows    = 1 << 20
	writeAtOnce  = 1 << 12 // rows
	bufferedOut  = 256 << 10
	bufferedPage = 16 << 10
	boundBytes   = 512 // of a text in a page's bounds: look-ups by id need them whole
)

// codec is shared: it keeps its encoders.
var codec = &zstd.Codec{Level: zstd.SpeedDefault}

// fileInfo is what a manifest says about a file.
type fileInfo struct {
	Rows   int64  `json:"rows"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// hashed counts and hashes what goes through it.
type hashed struct {
	w io.Writer
	h hash.Hash
	n int64
}

func (w *hashed) Write(b []byte) (int, error) {
	n, err := w.w.Write(b)
	w.h.Write(b[:n])
	w.n += int64(n)
	return n, err
}

// writeRows writes one table and syncs it.
func writeRows[T any](f vfs.FS, path string, rows []T) (info fileInfo, err error) {
	out, err := f.Create(path)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	buffer := bufio.NewWriterSize(out, bufferedOut)
	sum := &hashed{w: buffer, h: sha256.New()}
	w := parquet.NewGenericWriter[T](sum, parquet.Compression(codec), parquet.PageBufferSize(pageBytes), parquet.DataPageStatistics(false),
		parquet.MaxRowsPerRowGroup(groupRows), parquet.CreatedBy("whylate", "1", ""), parquet.ColumnIndexSizeLimit(func([]string) int { return boundBytes }))
	for from := 0; from < len(rows); from += writeAtOnce {
		if _, err := w.Write(rows[from:min(from+writeAtOnce, len(rows))]); err != nil {
			return info, err
		}
	}
	if err := w.Close(); err != nil {
		return info, err
	}
	if err := buffer.Flush(); err != nil {
		return info, err
	}
	if err := out.Sync(); err != nil {
		return info, err
	}
	return fileInfo{Rows: int64(len(rows)), Bytes: sum.n, SHA256: hex.EncodeToString(sum.h.Sum(nil))}, nil
}

// table is an open Parquet file.
type table struct {
	in   vfs.File
	file *parquet.File
	path string
}

// openTable opens a table; what it is damaged in, it is refused for.
func openTable(f vfs.FS, path string, want fileInfo) (t *table, err error) {
	in, err := f.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			in.Close()
		}
	}()
	size, err := in.Size()
	if err != nil {
		return nil, err
	}
	if size != want.Bytes {
		return nil, fmt.Errorf("it has %d bytes, %d were written", size, want.Bytes)
	}
	t = &table{in: in, path: path}
	err = guard(func() error {
		t.file, err = parquet.OpenFile(in, size, parquet.SkipBloomFilters(true), parquet.ReadBufferSize(bufferedPage))
		if err == nil && t.file.NumRows() != want.Rows {
			err = fmt.Errorf("it has %d rows, %d were written", t.file.NumRows(), want.Rows)
		}
		return err
	})
	return t, err
}

// guard turns a panic of the Parquet library over damaged bytes into an error.
func guard(do func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("unreadable: %v", r)
		}
	}()
	return do()
}

// readRows reads n rows from row from on. Columns that the file does not have are zero. Of a table that the period's format does not have
// (nil) there are none.
func readRows[T any](t *table, from, n int64) (rows []T, err error) {
	if t == nil {
		return nil, nil
	}
	total := t.file.NumRows()
	if from < 0 || from > total {
		return nil, fmt.Errorf("row %d of %d", from, total)
	}
	n = min(n, total-from)
	if n <= 0 {
		return nil, nil
	}
	err = guard(func() error {
		r := parquet.NewGenericReader[T](t.file)
		defer r.Close()
		if err := r.SeekToRow(from); err != nil {
			return err
		}
		rows = make([]T, n)
		for got := int64(0); got < n; {
			k, err := r.Read(rows[got:])
			got += int64(k)
			if err != nil && got < n {
				return fmt.Errorf("row %d of %d: %w", from+got, total, err)
			}
		}
		return nil
	})
	return rows, err
}

// column is a column's place in the file.
func (t *table) column(name string) (int, error) {
	leaf, ok := t.file.Schema().Lookup(name)
	if !ok {
		return 0, fmt.Errorf("it has no column %s", name)
	}
	return leaf.ColumnIndex, nil
}

// span is a run of rows.
type span struct{ from, to int64 } // to is not included

// has reports whether the file has a column.
func (t *table) has(name string) bool {
	_, ok := t.file.Schema().Lookup(name)
	return ok
}

// pagesWhere returns the runs of rows whose page, by its own minimum and maximum, may hold what is looked for. Nothing is unpacked.
func (t *table) pagesWhere(name string, may func(least, most int64) bool) (spans []span, err error) {
	if t == nil {
		return nil, nil
	}
	err = guard(func() error {
		k, err := t.column(name)
		if err != nil {
			return err
		}
		var base int64
		for _, g := range t.file.RowGroups() {
			chunk := g.ColumnChunks()[k]
			ci, err := chunk.ColumnIndex()
			if err != nil {
				return err
			}
			oi, err := chunk.OffsetIndex()
			if err != nil {
				return err
			}
			for p := range ci.NumPages() {
				from, to := oi.FirstRowIndex(p), g.NumRows()
				if p+1 < oi.NumPages() {
					to = oi.FirstRowIndex(p + 1)
				}
				if may(ci.MinValue(p).Int64(), ci.MaxValue(p).Int64()) {
					if n := len(spans); n > 0 && spans[n-1].to == base+from {
						spans[n-1].to = base + to
					} else {
						spans = append(spans, span{base + from, base + to})
					}
				}
			}
			base += g.NumRows()
		}
		return nil
	})
	return spans, err
}

// readColumn reads the integers of one column in rows from … to−1.
func (t *table) readColumn(name string, s span) ([]int64, error) {
	out := make([]int64, 0, s.to-s.from)
	err := t.chunks(name, s, func(chunk parquet.ColumnChunk, from, to int64) error { return readChunk(chunk, from, to, &out) })
	if err == nil && int64(len(out)) != s.to-s.from {
		err = fmt.Errorf("column %s: %d of %d values", name, len(out), s.to-s.from)
	}
	return out, err
}

// values gives each value of one column, whatever its type, in rows from … to−1.
func (t *table) values(name string, s span, each func(parquet.Value)) error {
	return t.chunks(name, s, func(chunk parquet.ColumnChunk, from, to int64) error { return eachValue(chunk, from, to, each) })
}

// chunks visits the parts of a column that rows from … to−1 lie in, each with its own row numbers.
func (t *table) chunks(name string, s span, visit func(chunk parquet.ColumnChunk, from, to int64) error) error {
	return guard(func() error {
		k, err := t.column(name)
		if err != nil {
			return err
		}
		var base int64
		for _, g := range t.file.RowGroups() {
			from, to := max(s.from-base, 0), min(s.to-base, g.NumRows())
			base += g.NumRows()
			if from < to {
				if err := visit(g.ColumnChunks()[k], from, to); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func eachValue(chunk parquet.ColumnChunk, from, to int64, each func(parquet.Value)) error {
	pages := chunk.Pages()
	defer pages.Close()
	if err := pages.SeekToRow(from); err != nil {
		return err
	}
	var values [256]parquet.Value
	for left := to - from; left > 0; {
		page, err := pages.ReadPage()
		if err != nil {
			return err
		}
		n := min(left, page.NumValues())
		left -= n
		for r := page.Values(); n > 0; {
			k, err := r.ReadValues(values[:min(n, int64(len(values)))])
			for _, v := range values[:k] {
				each(v)
			}
			if n -= int64(k); err != nil && n > 0 {
				return err
			}
		}
		parquet.Release(page)
	}
	return nil
}

func readChunk(chunk parquet.ColumnChunk, from, to int64, out *[]int64) error {
	if chunk.Type().Kind() != parquet.Int64 && chunk.Type().Kind() != parquet.Int32 {
		return fmt.Errorf("a column of type %v", chunk.Type())
	}
	pages := chunk.Pages()
	defer pages.Close()
	if err := pages.SeekToRow(from); err != nil {
		return err
	}
	for left := to - from; left > 0; {
		page, err := pages.ReadPage()
		if err != nil {
			return err
		}
		n := min(left, page.NumValues())
		left -= n
		data := page.Data()
		switch dictionary := page.Dictionary(); {
		case dictionary != nil:
			for _, i := range data.Int32()[:n] {
				if v := dictionary.Index(i); v.Kind() == parquet.Int32 {
					*out = append(*out, int64(v.Int32()))
				} else {
					*out = append(*out, v.Int64())
				}
			}
		case page.Type().Kind() == parquet.Int64:
			*out = append(*out, data.Int64()[:n]...)
		default:
			for _, v := range data.Int32()[:n] {
				*out = append(*out, int64(v))
			}
		}
		parquet.Release(page)
	}
	return nil
}

// close lets go of the file.
func (t *table) close() { t.in.Close() }

// tableOf finds the description of a table.
func tableOf(name string) store.Table {
	for _, t := range store.Tables {
		if t.Name == name {
			return t
		}
	}
	panic("no table " + name)
}
