// A service tells that it is ready, and finds the socket that it was given.
#include "runtime/base/service_notice.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "runtime/base/unique_handle.h"

namespace hearth {
namespace {

// What systemd would be: a datagram socket at a path or an abstract name.
class Listener {
 public:
  explicit Listener(const std::string& name) : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    bound_ = bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0;
  }
  bool bound() const { return bound_; }
  std::string Receive() {
    char buffer[256];
    const ssize_t n = recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    return n < 0 ? "nothing" : std::string(buffer, static_cast<size_t>(n));
  }

 private:
  UniqueFd fd_;
  bool bound_ = false;
};

TEST(ServiceNotice, ArrivesAtAPathAndAtAnAbstractName) {
  const std::string path = absl::StrCat(testing::TempDir(), "hearth_notice_", getpid());
  Listener at_path(path);
  ASSERT_TRUE(at_path.bound());
  ASSERT_TRUE(ServiceNotice::Create(path)->Send("READY=1\nSTATUS=serving").ok());
  EXPECT_EQ(at_path.Receive(), "READY=1\nSTATUS=serving");
  unlink(path.c_str());

  const std::string name = absl::StrCat("hearth_notice_", getpid());
  Listener abstract(std::string(1, '\0') + name);
  ASSERT_TRUE(abstract.bound());
  ASSERT_TRUE(ServiceNotice::Create(absl::StrCat("@", name))->Send("STOPPING=1").ok());
  EXPECT_EQ(abstract.Receive(), "STOPPING=1");
}

TEST(ServiceNotice, NobodyThereIsNoReasonToFailAndABadAddressIsNamed) {
  EXPECT_TRUE(ServiceNotice::Create("")->Send("READY=1").ok());
  EXPECT_FALSE(ServiceNotice::Create("/nowhere/hearth")->Send("READY=1").ok());
  for (const char* bad : {"relative", "/", "@", "vsock:2:1"})
    EXPECT_FALSE(ServiceNotice::Create(bad).ok()) << bad;
  EXPECT_FALSE(ServiceNotice::Create(std::string(200, '/')).ok());
}

TEST(ServiceNotice, TheEnvironmentIsReadByName) {
  const char* const environment[] = {"PATH=/bin",     "LISTEN_FDS=1",         "LISTEN_PID=42",
                                     "LISTEN_FDSX=7", "NOTIFY_SOCKET=/run/n", nullptr};
  const ServiceEnvironment found = ServiceEnvironmentOf(environment);
  EXPECT_EQ(found.listen_fds, "1");
  EXPECT_EQ(found.listen_pid, "42");
  EXPECT_EQ(found.notify_socket, "/run/n");
}

TEST(ServiceNotice, AnInheritedSocketIsTheThirdDescriptorOfTheProcessItIsMeantFor) {
  const auto inherited = [](const char* pid, const char* fds) {
    return InheritedSocket(pid, fds, 42);
  };
  EXPECT_EQ(*inherited("42", "1"), 3);
  EXPECT_EQ(*inherited("", ""), std::nullopt);
  EXPECT_EQ(*inherited("42", ""), std::nullopt);
  EXPECT_EQ(*inherited("42", "0"), std::nullopt);
  EXPECT_EQ(*inherited("43", "1"), std::nullopt);
  EXPECT_FALSE(inherited("42", "2").ok());
  EXPECT_FALSE(inherited("42", "-1").ok());
  EXPECT_FALSE(inherited("42x", "1").ok());
}

}  // namespace
}  // namespace hearth
