package containerlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// block is how much is read at once when a file is read backwards.
const block = 64 * 1024

// tailStart finds where the last n lines of a file of the given size begin. Records that go on in the next one are no
// lines of their own.
func tailStart(file io.ReaderAt, size, n int64) (int64, error) {
	if n <= 0 {
		return size, nil
	}
	var buffer []byte // from offset to the first line that was not counted
	offset, ends := size, int64(0)
	for offset > 0 {
		step := min(block, offset)
		offset -= step
		chunk := make([]byte, step, step+int64(len(buffer)))
		if _, err := file.ReadAt(chunk, offset); err != nil && !errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("read log backwards: %w", err)
		}
		if len(buffer) > maxRecord {
			buffer = nil // There is no end of a line for so long that it is no record.
			size = offset + step
		}
		buffer = append(chunk, buffer...)
		// Count whole lines from the end; the first in the buffer may have begun earlier.
		for {
			end := len(bytes.TrimSuffix(buffer, []byte("\n")))
			begin := bytes.LastIndexByte(buffer[:end], '\n') + 1
			if begin == 0 && offset > 0 || len(buffer) == 0 {
				break
			}
			atEnd := offset+int64(len(buffer)) == size
			if found, err := parse(buffer[begin:]); atEnd || err == nil && !found.partial {
				ends++
			}
			if ends > n {
				return offset + int64(len(buffer)), nil
			}
			buffer = buffer[:begin]
		}
	}
	return 0, nil
}
