package atrest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/apiserver/pkg/storage/value/encrypt/secretbox"

	"github.com/everynode/everynode/internal/storage/encryption"
)

// cipher encrypts and decrypts with the keys of one content of the file. What it
// writes is what the API server's library writes with the same file.
type cipher struct {
	value.Transformer
	keys encryption.Keys
}

func newCipher(keys encryption.Keys) cipher {
	if len(keys) == 0 {
		return cipher{Transformer: identity.NewEncryptCheckTransformer()}
	}
	var all []value.PrefixTransformer
	for _, k := range keys {
		if k.Name == encryption.Plain {
			all = append(all, value.PrefixTransformer{Transformer: identity.NewEncryptCheckTransformer()})
			continue
		}
		prefix := "k8s:enc:secretbox:v1:" + k.Name + ":"
		all = append(all, value.PrefixTransformer{
			Transformer: secretbox.NewSecretboxTransformer([32]byte(k.Secret)),
			Prefix:      []byte(prefix),
		})
	}
	none := fmt.Errorf("none of the keys %s fits", strings.Join(displayed(keys), ", "))
	return cipher{value.NewPrefixTransformers(none, all...), keys}
}

// parse reads the file's content.
func parse(file string, content []byte) (cipher, error) {
	keys, err := encryption.Decode(content)
	if err == nil && len(keys) == 0 {
		err = errors.New("holds no key; restore it from a backup")
	}
	if err != nil {
		return cipher{}, fmt.Errorf("%s %w", file, err)
	}
	return newCipher(keys), nil
}

func displayed(keys encryption.Keys) (out []string) {
	for _, k := range keys {
		if k.Name == encryption.Plain {
			k.Name = "identity"
		}
		out = append(out, k.Name)
	}
	return out
}

// has says whether a value that was written with the key can be read.
func (c cipher) has(key string) bool {
	if key == encryption.Plain && len(c.keys) == 0 {
		return true
	}
	for _, k := range c.keys {
		if key == encryption.Plain && k.Name == encryption.Plain ||
			key == encryption.SecretBox+k.Name && k.Name != encryption.Plain {
			return true
		}
	}
	return false
}

// writes is the key of what is written.
func writes(ctx context.Context, t value.Transformer) (string, error) {
	written, err := t.TransformToStorage(ctx, []byte("which key?"), value.DefaultContext("which key?"))
	if err != nil {
		return "", fmt.Errorf("encrypt something: %w", err)
	}
	return encryption.KeyOf(written), nil
}
