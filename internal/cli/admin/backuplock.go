package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/everynode/everynode/internal/cli/command"
	"github.com/everynode/everynode/internal/storage/backup"
)

// lockFlags say with what a backup is encrypted.
type lockFlags struct {
	passphraseFile, keyFile string
	unencrypted             bool
}

func (l *lockFlags) add(cmd *cobra.Command, what string) {
	f := cmd.Flags()
	f.StringVar(&l.passphraseFile, "passphrase-file", "",
		"file with the passphrase to "+what+"; without it, it is asked for on a terminal")
	f.StringVar(&l.keyFile, "key-file", "", "file with the keys of age to "+what+"; \"everynode backup key\" makes one")
	f.BoolVar(&l.unencrypted, "unencrypted", false, "the backup is not encrypted: whoever reads it controls the cluster")
}

// given is the lock that the flags say; none is given without an error.
func (l *lockFlags) given() (lock backup.Lock, given bool, err error) {
	count := 0
	for _, said := range []bool{l.passphraseFile != "", l.keyFile != "", l.unencrypted} {
		if said {
			count++
		}
	}
	switch {
	case count > 1:
		return lock, false, errors.New("give one of --passphrase-file, --key-file and --unencrypted")
	case l.unencrypted:
		return backup.Lock{Plain: true}, true, nil
	case l.passphraseFile != "":
		content, err := readSecret(l.passphraseFile, true)
		if err == nil {
			lock, err = backup.Passphrase(string(content))
		}
		if err != nil {
			return lock, false, fmt.Errorf("--passphrase-file %s: %w", l.passphraseFile, err)
		}
		return lock, true, nil
	case l.keyFile != "":
		lock, err = readKeys(l.keyFile)
		if err != nil {
			return lock, false, fmt.Errorf("--key-file %s: %w", l.keyFile, err)
		}
		return lock, true, nil
	}
	return lock, false, nil
}

func (l *lockFlags) forSaving(cmd *cobra.Command) (backup.Lock, error) {
	lock, given, err := l.given()
	if err != nil || given {
		return lock, err
	}
	if !onTerminal(cmd.InOrStdin()) {
		return lock, errors.New(
			"a backup holds all keys of the cluster, so it is encrypted; give --passphrase-file or --key-file, or, if you " +
				"must, --unencrypted",
		)
	}
	first, err := askPassphrase(cmd, "Passphrase for the backup: ")
	if err != nil {
		return lock, err
	}
	second, err := askPassphrase(cmd, "The same passphrase again: ")
	if err != nil {
		return lock, err
	}
	if first != second {
		return lock, errors.New("the two passphrases differ; nothing was written")
	}
	return backup.Passphrase(first)
}

// forOpening may give a lock that opens nothing; then the passphrase is asked for.
func (l *lockFlags) forOpening(*cobra.Command) (backup.Lock, error) {
	lock, _, err := l.given()
	return lock, err
}

func readKeys(path string) (backup.Lock, error) {
	content, err := readSecret(path, false)
	if err != nil {
		return backup.Lock{}, err
	}
	lock, err := backup.Keys(content)
	if err == nil && lock.Secret() {
		_, err = readSecret(path, true)
	}
	return lock, err
}

// maxSecret bounds a file with a passphrase or keys, in bytes.
const maxSecret = 64 << 10

// readSecret reads a small file. What others on the machine can read is no secret.
func readSecret(path string, secret bool) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it is only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if secret && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("other users of this machine can read or change it (the mode is %04o); run chmod 600 %s",
			info.Mode().Perm(), path)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err == nil && len(content) > maxSecret {
		err = errors.New("it is too large to be a passphrase or a file of keys")
	}
	return content, err
}

func onTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func askPassphrase(cmd *cobra.Command, question string) (string, error) {
	f, ok := cmd.InOrStdin().(*os.File)
	if !ok {
		return "", errors.New("ask for the passphrase: there is no terminal; give --passphrase-file")
	}
	fmt.Fprint(cmd.ErrOrStderr(), question)
	text, err := term.ReadPassword(int(f.Fd()))
	fmt.Fprintln(cmd.ErrOrStderr())
	if err != nil {
		return "", fmt.Errorf("ask for the passphrase: %w", err)
	}
	return string(text), nil
}

// askBackup asks a server for a backup, as its administrator.
func askBackup(ctx context.Context, kubeconfig string) (io.ReadCloser, error) {
	if err := command.CheckKubeconfig(kubeconfig); err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the administrator's kubeconfig %s: %w", kubeconfig, err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("use the administrator's kubeconfig: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(config.Host, "/")+backup.Path,
		nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%w; does the server run?", err)
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxSecret))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case response.StatusCode == http.StatusNotFound:
		return nil, errors.New(
			"the server makes no backups: it is too old, or keeps its data in an etcd of others, whose backup etcdctl " +
				"snapshot save makes",
		)
	}
	return nil, errors.New(strings.TrimSpace(string(text)))
}
