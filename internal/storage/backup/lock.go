package backup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
)

// maxWork bounds, as a power of two, what checking a passphrase may cost: a file of
// somebody else could ask for all of the memory. Ours ask for as much.
const maxWork = 18

// Lock is with what a backup is encrypted. The zero value encrypts nothing, and is
// refused unless Plain says that this is wanted.
type Lock struct {
	Plain      bool
	recipients []age.Recipient
	identities []age.Identity
	secret     bool
}

// Passphrase locks and opens with words that people keep.
func Passphrase(text string) (Lock, error) {
	text = strings.TrimRight(text, "\r\n")
	if text == "" {
		return Lock{}, errors.New("the passphrase is empty")
	}
	recipient, err := age.NewScryptRecipient(text)
	if err != nil {
		return Lock{}, fmt.Errorf("use the passphrase: %w", err)
	}
	recipient.SetWorkFactor(maxWork)
	identity, err := age.NewScryptIdentity(text)
	if err != nil {
		return Lock{}, fmt.Errorf("use the passphrase: %w", err)
	}
	identity.SetMaxWorkFactor(maxWork)
	return Lock{recipients: []age.Recipient{recipient}, identities: []age.Identity{identity}, secret: true}, nil
}

// Keys reads a file of age keys. A line AGE-SECRET-KEY-1... locks and opens; age1...,
// the public half, only locks.
func Keys(content []byte) (Lock, error) {
	var l Lock
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "AGE-SECRET-KEY-1"):
			identity, err := age.ParseX25519Identity(line)
			if err != nil {
				return Lock{}, errors.New("the file holds a secret key that cannot be read")
			}
			l.identities, l.recipients = append(l.identities, identity), append(l.recipients, identity.Recipient())
			l.secret = true
		case strings.HasPrefix(line, "age1"):
			recipient, err := age.ParseX25519Recipient(line)
			if err != nil {
				return Lock{}, fmt.Errorf("the file holds a public key that cannot be read, %.20s", strings.Map(printable, line))
			}
			l.recipients = append(l.recipients, recipient)
		default:
			return Lock{}, errors.New("the file holds something else than age keys; \"everynode backup key FILE\" makes one")
		}
	}
	if len(l.recipients) == 0 {
		return Lock{}, errors.New("the file holds no key; \"everynode backup key FILE\" makes one")
	}
	return l, nil
}

// NewKey makes a key. The public half is enough to write backups.
func NewKey() (secret, public string, err error) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		return "", "", fmt.Errorf("make a key: %w", err)
	}
	return identity.String(), identity.Recipient().String(), nil
}

// Secret reports whether whoever has the lock can open what it locks.
func (l Lock) Secret() bool { return l.secret }

// seal writes the first line, and returns where the rest goes.
func (l Lock) seal(w io.Writer) (io.WriteCloser, error) {
	h := header{format: Format, seal: sealedAge}
	switch {
	case l.Plain && len(l.recipients) == 0:
		h.seal = sealedNot
	case len(l.recipients) == 0:
		return nil, errors.New("nothing is given to encrypt the backup with, which holds all keys of the cluster")
	}
	if _, err := io.WriteString(w, h.String()); err != nil {
		return nil, err
	}
	if h.seal == sealedNot {
		return unsealed{w}, nil
	}
	sealed, err := age.Encrypt(w, l.recipients...)
	if err != nil {
		return nil, fmt.Errorf("encrypt the backup: %w", err)
	}
	return sealed, nil
}

type unsealed struct{ io.Writer }

func (unsealed) Close() error { return nil }

// ErrLocked says that a backup is encrypted and nothing was given to open it.
var ErrLocked = errors.New("the backup is encrypted; give --passphrase-file or --key-file")

// open reads the first line, and returns the rest.
func (l Lock) open(r io.Reader) (io.Reader, bool, error) {
	buffered := bufio.NewReader(r)
	h, err := readHeader(buffered)
	if err != nil {
		return nil, false, err
	}
	if h.seal == sealedNot {
		if !l.Plain {
			return nil, false, errors.New(
				"the backup is not encrypted, so anybody may have changed it; give --unencrypted, and nothing to open it with, " +
					"if you know where it comes from",
			)
		}
		return buffered, false, nil
	}
	if len(l.identities) == 0 {
		if len(l.recipients) > 0 {
			return nil, false, errors.New("the key file holds public keys only; the backup is opened with the secret key")
		}
		return nil, false, ErrLocked
	}
	if begin, err := buffered.Peek(len(ageBegin)); err != nil {
		return nil, false, errCutOff
	} else if !bytes.Equal(begin, []byte(ageBegin)) {
		return nil, false, fmt.Errorf("%w: what follows its first line is not encrypted with age", errAltered)
	}
	opened, err := age.Decrypt(buffered, l.identities...)
	var wrong *age.NoIdentityMatchError
	switch {
	case errors.As(err, &wrong):
		return nil, false, errors.New("the passphrase or key is not the one with which the backup was encrypted")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return nil, false, errCutOff
	case err != nil:
		return nil, false, fmt.Errorf("%w: %s", errAltered, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return opened, true, nil
}

const ageBegin = "age-encryption.org/"
