package remember

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// minKey is how many bytes a file with a key has at least.
const minKey = 32

// Seal encrypts what is kept on the disk. The zero value leaves it as it is.
type Seal struct{ gcm cipher.AEAD }

// NewSeal returns the seal of the key in a file, which must be for its owner only.
func NewSeal(path string) (Seal, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Seal{}, fmt.Errorf("find the key for what the node remembers: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return Seal{}, fmt.Errorf("the key %s can be read by others on this machine; chmod 600 it", path)
	}
	key, err := os.ReadFile(path)
	if err != nil {
		return Seal{}, fmt.Errorf("read the key for what the node remembers: %w", err)
	}
	if len(key) < minKey {
		return Seal{}, fmt.Errorf(
			"the key %s has %d bytes, and needs %d at least: head -c 32 /dev/urandom makes one", path, len(key), minKey,
		)
	}
	sum := sha256.Sum256(append([]byte("everynode agent: what a node remembers\x00"), key...))
	block, err := aes.NewCipher(sum[:])
	if err != nil {
		return Seal{}, fmt.Errorf("use the key %s: %w", path, err)
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return Seal{}, fmt.Errorf("use the key %s: %w", path, err)
	}
	return Seal{gcm}, nil
}

// errNotSealed says that a file is of before there was a key, or of somebody who has none.
var errNotSealed = errors.New(
	"it is not encrypted, so anybody may have changed it; with --remember-secrets a file that is not encrypted does not " +
		"count",
)

// sealed is a line that nobody can read without the key.
type sealed struct {
	Sealed []byte `json:"sealed"`
	// Writing is the same for all lines of a file, and another each time that it is
	// written, so that lines of two files cannot be put together.
	Writing []byte `json:"writing,omitempty"`
}

// sealing seals or opens the lines of one file.
type sealing struct {
	Seal
	writing []byte
}

// newWriting begins a file.
func (s Seal) newWriting() *sealing {
	writing := make([]byte, 16)
	_, _ = rand.Read(writing) // it never fails
	return &sealing{s, writing}
}

// close seals a line; its number goes in, so that lines cannot change places.
func (s *sealing) close(raw []byte, number int) ([]byte, error) {
	if s.gcm == nil {
		return raw, nil
	}
	return json.Marshal(sealed{s.gcm.Seal(nil, nil, raw, s.place(number)), s.writing})
}

// open undoes close. With a key nothing counts that was never sealed.
func (s *sealing) open(raw []byte, number int) ([]byte, error) {
	var l sealed
	if err := json.Unmarshal(raw, &l); err != nil {
		return nil, err
	}
	switch {
	case l.Sealed == nil && s.gcm == nil:
		return raw, nil
	case l.Sealed == nil:
		return nil, errNotSealed
	case s.gcm == nil:
		return nil, errors.New("it is encrypted, and --remember-secrets names no key")
	case number == 0:
		s.writing = l.Writing // none in files of before there was one
	case !bytes.Equal(s.writing, l.Writing):
		return nil, errors.New("it is of another file: somebody has put two together")
	}
	opened, err := s.gcm.Open(nil, nil, l.Sealed, s.place(number))
	if err != nil {
		return nil, errors.New(
			"it cannot be decrypted: the key that --remember-secrets names is another one, or the file was changed",
		)
	}
	return opened, nil
}

// place is what is sealed with a line, besides its content.
func (s *sealing) place(number int) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(number)), s.writing...)
}
