package server_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/storage/encryption"
	"github.com/everynode/everynode/internal/testenv"
)

// copyFolder copies the files of a folder.
func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			copyFile(t, filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Two servers on one etcd: the key is replaced only as fast as both have the file, and
// each reads what the other writes at every moment.
func TestKeyOfTwoServersIsReplaced(t *testing.T) {
	t.Parallel()
	c := startMembers(t, 1)
	first := testenv.Start(t, c.use, quick)
	folder := filepath.Join(t.TempDir(), "second")
	copyFolder(t, filepath.Join(first.DataDir(), "pki"), filepath.Join(folder, "pki"))
	copyFile(t, encryption.File(first.DataDir()), encryption.File(folder))
	second := testenv.Start(t, c.use, quick, func(o *config.Options) { o.DataDir = folder })
	envs := []*testenv.Env{first, second}
	stage := 0
	both := func() {
		t.Helper()
		stage++
		for i, env := range envs {
			name := fmt.Sprintf("s-%d-%d", stage, i)
			makeSecret(t, env.Client, name, "x")
			checkSecret(t, envs[1-i].Client, name, "x")
		}
	}
	both()
	var out bytes.Buffer
	copies := 0
	for {
		change := changeOf(first, copies == 0, &out)
		change.Patience = 5 * time.Second
		err := change.Run(t.Context())
		both()
		if err == nil {
			break
		}
		if !strings.Contains(err.Error(), "copy the file there") || copies > 4 {
			t.Fatalf("after %d copies: %v\n%s", copies, err, &out)
		}
		copies++
		copyFile(t, encryption.File(first.DataDir()), encryption.File(folder))
	}
	if copies != 2 {
		t.Errorf("the file was asked for %d times, want when the key was added and when it was promoted\n%s", copies, &out)
	}
	// The last content goes there, too, before the next change; both start with it.
	copyFile(t, encryption.File(first.DataDir()), encryption.File(folder))
	for _, env := range envs {
		env.Restart()
		for n := 1; n <= stage; n++ {
			checkSecret(t, env.Client, fmt.Sprintf("s-%d-1", n), "x")
		}
	}
}
