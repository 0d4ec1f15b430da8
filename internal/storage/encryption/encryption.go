// Package encryption is about the keys with which Secrets are encrypted in the
// database: the file that holds them, what a server tells about them, and how they
// are changed. Which step of a change is next is decided by package plan.
package encryption

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/internal/files/wholefile"
)

// fileName is the file beside the data. It is a standard EncryptionConfiguration.
const fileName = "encryption.yaml"

// secretSize is what the cipher wants, in bytes.
const secretSize = 32

// Plain is the name of what is not encrypted.
const Plain = ""

// Key is one key. That with the name Plain has no secret, and encrypts nothing.
type Key struct {
	Name   string
	Secret []byte
}

// Keys are in the order of the file: the first one writes, all of them read.
type Keys []Key

// Names are the names of the keys.
func (k Keys) Names() []string {
	out := make([]string, 0, len(k))
	for _, key := range k {
		out = append(out, key.Name)
	}
	return out
}

// NewKey makes a key.
func NewKey(name string) (Key, error) {
	secret := make([]byte, secretSize)
	if _, err := rand.Read(secret); err != nil {
		return Key{}, fmt.Errorf("make a key: %w", err)
	}
	return Key{Name: name, Secret: secret}, nil
}

// File is where the keys of a data folder are.
func File(dataDir string) string { return filepath.Join(dataDir, fileName) }

// Read returns the file's content, or nothing where there is none. What others on
// the machine can read is no secret, and is refused.
func Read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if to, linked := os.Readlink(path); linked == nil {
			return nil, fmt.Errorf(
				"%s is a link to %s, where there is nothing; mount what holds it, or remove the link if these keys are not "+
					"needed any more",
				path, to,
			)
		}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the keys of stored Secrets: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf(
			"%s: other users of this machine can read or change these keys (the mode is %04o); run chmod 600 %s, and "+
				"everynode secrets rotate-key if somebody may have read them",
			path, info.Mode().Perm(), path,
		)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the keys of stored Secrets: %w", err)
	}
	if len(content) == 0 {
		return nil, fmt.Errorf("%s is empty; restore it from a backup, or from another server of the cluster", path)
	}
	return content, nil
}

// Write puts the keys into the file in one step, and returns what is in it.
func Write(path string, keys Keys) ([]byte, error) {
	content, err := Encode(keys)
	if err != nil {
		return nil, err
	}
	if err := WriteEncoded(path, content); err != nil {
		return nil, fmt.Errorf("%w; mend that and run this again", err)
	}
	return content, nil
}

// WriteEncoded puts what Encode made into the file in one step. A link stays one: whoever
// keeps the keys on another disk than the data goes on to.
func WriteEncoded(path string, content []byte) error {
	path, err := place(path)
	if err != nil {
		return err
	}
	err = wholefile.Write(path, 0o600, wholefile.Bytes(content))
	if err == nil {
		err = wholefile.SyncFolder(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("write the keys of stored Secrets: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// place is where the file itself is, if path is a link to it.
func place(path string) (string, error) {
	to, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Readlink(path); err == nil {
			return "", fmt.Errorf("%s is a link to nothing; mount what holds it", path)
		}
		return path, nil
	}
	if err != nil {
		return "", fmt.Errorf("look for the keys of stored Secrets: %w", err)
	}
	return to, nil
}

// checkOwner makes sure that the server can read what this process writes.
func checkOwner(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = os.Stat(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("look for the keys of stored Secrets: %w", err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf(
			"%s is the user's with the number %d, who could not read keys that another user writes; run this as that user",
			path, owner.Uid,
		)
	}
	return nil
}

// RemoveUnfinished removes what a process left that was killed while it wrote the
// file: there are keys in it.
func RemoveUnfinished(path string) error {
	path, err := place(path)
	if err != nil {
		return err
	}
	beside, err := os.ReadDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for files of keys that were never finished: %w", err)
	}
	for _, file := range beside {
		if !strings.HasPrefix(file.Name(), wholefile.Unfinished(path)) || !file.Type().IsRegular() {
			continue
		}
		if err := os.Remove(filepath.Join(filepath.Dir(path), file.Name())); err != nil {
			return fmt.Errorf("remove a file of keys that was never finished: %w", err)
		}
	}
	return nil
}

// Hash tells one content of the file from another.
func Hash(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

const header = `# The keys of the Secrets in the database. The first one writes, all of them read.
# A backup of the database is of no use without this file. Nobody else may read it.
`

// Encode is the file's content.
func Encode(keys Keys) ([]byte, error) {
	config := apiserverv1.EncryptionConfiguration{}
	config.APIVersion, config.Kind = apiserverv1.SchemeGroupVersion.String(), "EncryptionConfiguration"
	providers := make([]apiserverv1.ProviderConfiguration, 0, len(keys))
	for _, k := range keys {
		p := apiserverv1.ProviderConfiguration{Identity: &apiserverv1.IdentityConfiguration{}}
		if k.Name != Plain {
			secret := base64.StdEncoding.EncodeToString(k.Secret)
			p = apiserverv1.ProviderConfiguration{
				Secretbox: &apiserverv1.SecretboxConfiguration{Keys: []apiserverv1.Key{{Name: k.Name, Secret: secret}}},
			}
		}
		providers = append(providers, p)
	}
	config.Resources = []apiserverv1.ResourceConfiguration{{Resources: []string{"secrets"}, Providers: providers}}
	content, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encode the keys: %w", err)
	}
	return append([]byte(header), content...), nil
}

// ErrByHand says that a configuration is not one of those that Everynode makes: what
// else is in it would be left undone.
var ErrByHand = errors.New("is not as Everynode makes it, with keys of secretbox, and identity, for secrets alone; " +
	"move it to another place and name it with --encryption-provider-config")

// Decode reads the content of a file that Encode made.
func Decode(content []byte) (Keys, error) {
	var config apiserverv1.EncryptionConfiguration
	if err := yaml.UnmarshalStrict(content, &config); err != nil {
		return nil, fmt.Errorf(
			"cannot be understood: %s; restore it from a backup", strings.ReplaceAll(err.Error(), "\n", " "),
		)
	}
	if len(config.Resources) != 1 || len(config.Resources[0].Resources) != 1 ||
		config.Resources[0].Resources[0] != "secrets" {
		return nil, ErrByHand
	}
	var keys Keys
	for _, p := range config.Resources[0].Providers {
		k, err := decodeProvider(p)
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	// A field that nobody looked at would be lost with the next change.
	again, err := Encode(keys)
	if err != nil {
		return nil, err
	}
	if !sameConfiguration(content, again) {
		return nil, ErrByHand
	}
	return keys, nil
}

func decodeProvider(p apiserverv1.ProviderConfiguration) (Key, error) {
	switch {
	case p.Secretbox != nil && len(p.Secretbox.Keys) == 1:
		secret, err := base64.StdEncoding.DecodeString(p.Secretbox.Keys[0].Secret)
		if err != nil || len(secret) != secretSize {
			return Key{}, fmt.Errorf(
				"key %q is not %d bytes in base64; restore the file from a backup", p.Secretbox.Keys[0].Name, secretSize,
			)
		}
		return Key{Name: p.Secretbox.Keys[0].Name, Secret: secret}, nil
	case p.Identity != nil:
		return Key{}, nil
	}
	return Key{}, ErrByHand
}

// sameConfiguration compares two files without their comments.
func sameConfiguration(a, b []byte) bool {
	first, err1 := yaml.YAMLToJSON(a)
	second, err2 := yaml.YAMLToJSON(b)
	return err1 == nil && err2 == nil && bytes.Equal(first, second)
}
