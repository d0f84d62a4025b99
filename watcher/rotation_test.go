package watcher

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// soon makes the files be read again at once.
func soon(l *limits) { l.recheck = time.Millisecond }

// Each row is a way to trust a server: what the file says with one identity or several.
var trusts = []struct {
	name string
	file string
	make func(t testing.TB) (server, file *identity)
}{
	{"CA", "ca.crt", func(t testing.TB) (server, file *identity) {
		ca := issue(t, nil, authority)
		return issue(t, ca), ca
	}},
	{"trusted peers", "peers.pem", func(t testing.TB) (server, file *identity) {
		server = issue(t, nil)
		return server, server
	}},
}

func TestRotationOfTrust(t *testing.T) {
	for _, test := range trusts {
		t.Run(test.name, func(t *testing.T) {
			oldServer, oldTrust := test.make(t)
			newServer, newTrust := test.make(t)
			server := startAPI(t, oldServer)
			ended := server.answerWatches()
			account := newAccount(t, oldTrust.certPEM())
			account.put(t, test.file, oldTrust.certPEM())
			api := account.api(server.URL)
			if test.file == "peers.pem" {
				api.TrustedPeerCertFile = account.path(test.file)
			}
			client := newClient(t, api, soon)
			body := startWatch(t, client)
			server.take()

			// Both, then the server's new one, then the new one alone. A change of trust is a new connection.
			for range 3 {
				mustGet(t, client, server)
			}
			if got := server.opened.Load(); got != 1 {
				t.Errorf("%d connections before the change, want 1", got)
			}
			account.put(t, test.file, certsPEM(oldTrust, newTrust))
			mustEnd(t, body)
			<-ended
			mustGet(t, client, server)
			opened := server.opened.Load()
			if opened < 2 {
				t.Error("the connection outlived the change of trust")
			}
			server.become(newServer, true)
			account.put(t, test.file, newTrust.certPEM())
			if got := mustGet(t, client, server); got.resumed {
				t.Error("a session was resumed over the change of trust")
			}
			if server.opened.Load() == opened {
				t.Error("the connection outlived the removal of trust")
			}

			// Now trust is taken from the server, which goes on: it sees nothing more.
			body = startWatch(t, client)
			server.take()
			account.put(t, test.file, oldTrust.certPEM())
			mustEnd(t, body)
			mustFail(t, client, "signed by unknown authority")
			server.mustHaveSeenNothing(t)
			account.put(t, test.file, newTrust.certPEM())
			mustGet(t, client, server)
		})
	}
}

// A new file that is broken changes nothing but what is said about it.
func TestBrokenFilesLeaveWhatWasBefore(t *testing.T) {
	ca := issue(t, nil, authority)
	peer := issue(t, nil)
	for _, test := range []struct{ file, good, better, broken, want string }{
		{"token", secret + "-1", secret + "-2", " \n", "token: is empty"},
		{"ca.crt", ca.certPEM(), certsPEM(ca, peer), ca.certPEM()[:100], "certificate authority: "},
		{"peers.pem", peer.certPEM(), certsPEM(ca, peer), "junk", "trusted peers: "},
	} {
		for _, how := range []string{"broken", "gone"} {
			t.Run(test.file+" "+how, func(t *testing.T) {
				as := issue(t, ca)
				account := newAccount(t, ca.certPEM())
				api := account.api("")
				if test.file == "peers.pem" {
					as, api.TrustedPeerCertFile = peer, account.path(test.file)
				}
				server := startAPI(t, as)
				api.URL = server.URL
				account.put(t, test.file, test.good)
				client := newClient(t, api)
				before := mustGet(t, client, server)
				if err := client.FilesFault(); err != nil {
					t.Errorf("files that are good have the fault %v", err)
				}

				want := test.want
				if how == "broken" {
					account.put(t, test.file, test.broken)
				} else {
					want = "no such file or directory"
					if err := os.Remove(account.path(test.file)); err != nil {
						t.Fatal(err)
					}
				}
				for range 3 {
					if got := mustGet(t, client, server); got != before {
						t.Errorf("got %+v, want %+v as before", got, before)
					}
				}
				if err := client.FilesFault(); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), account.path(test.file)+": ", ""), want) {
					t.Errorf("got the fault %v, want %q", err, want)
				}
				if n := strings.Count(account.log.String(), "level=ERROR"); n != 1 {
					t.Errorf("got %d lines, want one:\n%s", n, account.log)
				}
				account.put(t, test.file, test.better)
				mustGet(t, client, server)
				if err := client.FilesFault(); err != nil {
					t.Errorf("the fault stays: %v", err)
				}
			})
		}
	}
}

// While the trust cannot be read as it should be, what fails says so too.
func TestErrorsNameBrokenFiles(t *testing.T) {
	ca := issue(t, nil, authority)
	server := startAPI(t, issue(t, nil))
	account := newAccount(t, ca.certPEM())
	client := newClient(t, account.api(server.URL))
	account.put(t, "ca.crt", "nothing")
	mustFail(t, client, "signed by unknown authority")
	mustFail(t, client, "certificate authority: "+account.path("ca.crt")+": no certificate in PEM form")
	server.mustHaveSeenNothing(t)
}

func TestRotationOfTokens(t *testing.T) {
	ca := issue(t, nil, authority)
	server := startAPI(t, issue(t, ca))
	server.answerWatches()
	account := newAccount(t, ca.certPEM())
	client := newClient(t, account.api(server.URL), soon)
	body := startWatch(t, client)
	server.take()
	for _, token := range []string{secret + "-1", secret + "-2", secret + "-3"} {
		account.put(t, "token", token+"\n")
		if got := mustGet(t, client, server).authorization; got != "Bearer "+token {
			t.Errorf("got %s, want the token %s", got, token)
		}
	}
	if got := server.opened.Load(); got != 1 {
		t.Errorf("%d connections, want one: a token is for a request", got)
	}
	body.Close()
}

// A kubeconfig may have what it needs as files, which are followed, or in itself.
func TestKubeconfigs(t *testing.T) {
	ca := issue(t, nil, authority)
	server := startAPI(t, issue(t, ca))
	first, second := issue(t, nil, forClients), issue(t, nil, forClients)
	account := newAccount(t, ca.certPEM())
	account.put(t, "client.crt", first.certPEM())
	account.put(t, "client.key", first.keyPEM(t))
	for _, test := range []struct {
		name    string
		cluster clientcmdapi.Cluster
		user    clientcmdapi.AuthInfo
		client  bool // has a certificate
		follows bool
	}{
		{
			"as files",
			clientcmdapi.Cluster{CertificateAuthority: account.path("ca.crt")},
			clientcmdapi.AuthInfo{TokenFile: account.path("token"), ClientCertificate: account.path("client.crt"), ClientKey: account.path("client.key")},
			true, true,
		},
		{
			"as data",
			clientcmdapi.Cluster{CertificateAuthorityData: []byte(ca.certPEM())},
			clientcmdapi.AuthInfo{
				Token:                 secret + "-1",
				ClientCertificateData: []byte(first.certPEM()), ClientKeyData: []byte(first.keyPEM(t)),
			},
			true, false,
		},
		{
			"with a token alone",
			clientcmdapi.Cluster{CertificateAuthorityData: []byte(ca.certPEM())},
			clientcmdapi.AuthInfo{Token: secret + "-1"},
			false, false,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kubeconfig")
			test.cluster.Server = server.URL
			config := clientcmdapi.NewConfig()
			config.Clusters["c"], config.AuthInfos["u"] = &test.cluster, &test.user
			config.Contexts["c"], config.CurrentContext = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}, "c"
			if err := clientcmd.WriteToFile(*config, path); err != nil {
				t.Fatal(err)
			}
			account.put(t, "client.key", first.keyPEM(t))
			account.put(t, "client.crt", first.certPEM())
			api := account.api("")
			api.Kubeconfig = path
			client := newClient(t, api)
			want := request{authorization: "Bearer " + secret + "-1", agent: "peerdns/test", proto: "HTTP/2.0"}
			if test.client {
				want.client = first.cert.SerialNumber.Int64()
			}
			if got := mustGet(t, client, server); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			// Between the two the pair does not match, which is no reason to ask without.
			account.put(t, "client.key", second.keyPEM(t))
			if got := mustGet(t, client, server); got != want {
				t.Errorf("in between: got %+v, want %+v", got, want)
			}
			account.put(t, "client.crt", second.certPEM())
			if test.follows {
				want.client = second.cert.SerialNumber.Int64()
			}
			if got := mustGet(t, client, server); got != want {
				t.Errorf("after the change: got %+v, want %+v", got, want)
			}
		})
	}
}
