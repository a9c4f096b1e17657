//go:build linux

package bellwire

import "errors"

const (
	batchEnds     = 1
	batchStatuses = 2
	batchHead     = 16
)

var errBatch = errors.New("the bytes are no batch")

// Item is one answer of a batch.
type Item struct {
	Status Status // of this item
	Bytes  []byte // the answer, or what Err makes an error of
}

// Err returns nil of an item that is ok, or else what went wrong.
func (i Item) Err() error {
	if i.Status == StatusOK {
		return nil
	}
	return parseReason(i.Status, i.Bytes)
}

// appendBatch encodes items; with statuses only where one is not ok.
func appendBatch(dst []byte, items []Item) []byte {
	stride, flags := 0, uint32(0)
	for i, item := range items {
		if i == 0 {
			stride = len(item.Bytes)
		}
		if len(item.Bytes) != stride || len(item.Bytes) == 0 {
			flags |= batchEnds
		}
		if item.Status != StatusOK {
			flags |= batchStatuses
		}
	}
	if flags&batchEnds != 0 {
		stride = 0
	}
	dst = le.AppendUint32(dst, uint32(len(items)))
	dst = le.AppendUint32(dst, uint32(stride))
	dst = le.AppendUint32(dst, flags)
	dst = le.AppendUint32(dst, 0)
	for _, item := range items {
		dst = append(dst, item.Bytes...)
	}
	if flags&batchEnds != 0 {
		end := uint32(0)
		for _, item := range items {
			end += uint32(len(item.Bytes))
			dst = le.AppendUint32(dst, end)
		}
	}
	if flags&batchStatuses != 0 {
		for _, item := range items {
			dst = append(dst, byte(item.Status))
		}
	}
	return dst
}

// batchCount reads how many items a batch says that it has.
func batchCount(b []byte) (int, error) {
	if len(b) < batchHead || le.Uint32(b[12:]) != 0 || le.Uint32(b[8:])&^(batchEnds|batchStatuses) != 0 {
		return 0, errBatch
	}
	return int(le.Uint32(b)), nil
}

// parseBatch decodes a batch. The items lie in b.
func parseBatch(b []byte) ([]Item, error) {
	if _, err := batchCount(b); err != nil {
		return nil, err
	}
	// 64 bits throughout, so that no sum overflows where an int has 32.
	count, stride, flags := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:])), le.Uint32(b[8:])
	body := b[batchHead:]
	tables := uint64(0)
	if flags&batchEnds != 0 {
		tables += 4 * count
	}
	if flags&batchStatuses != 0 {
		tables += count
	}
	if tables > uint64(len(body)) {
		return nil, errBatch
	}
	bytes := uint64(len(body)) - tables
	if flags&batchEnds == 0 {
		if stride == 0 && count != 0 || count*stride != bytes {
			return nil, errBatch
		}
	} else if stride != 0 || count == 0 && bytes != 0 {
		return nil, errBatch
	}
	ends, statuses := body[bytes:], body[uint64(len(body))-count:]
	items := make([]Item, count)
	at := uint64(0)
	for i := range items {
		end := at + stride
		if flags&batchEnds != 0 {
			end = uint64(le.Uint32(ends[4*i:]))
		}
		if end < at || end > bytes {
			return nil, errBatch
		}
		items[i].Bytes = body[at:end:end]
		if flags&batchStatuses != 0 {
			items[i].Status = Status(statuses[i])
			if !items[i].Status.known() {
				return nil, errBatch
			}
		}
		at = end
	}
	if at != bytes {
		return nil, errBatch
	}
	return items, nil
}
