/*
 * cxx_names - a C++ program: one thread holds a std::mutex that is a static member of a class
 * template and sleeps, three wait for it in a member function.
 */
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <sys/syscall.h>

namespace shop
{

static std::atomic<int> holder{0}, inside{0};

template <typename T> class Store
{
  public:
    static std::mutex guard;
    __attribute__((noinline)) void put(const T &what)
    {
        inside++;
        std::lock_guard<std::mutex> lock(guard);
        items.push_back(what);
    }
    __attribute__((noinline)) void close_for_ever()
    {
        std::lock_guard<std::mutex> lock(guard);
        holder = static_cast<int>(syscall(SYS_gettid));
        for (;;)
            pause();
    }

  private:
    std::vector<T> items;
};
template <typename T> std::mutex Store<T>::guard;

} // namespace shop

static bool asleep(int tid)
{
    std::string path = "/proc/self/task/" + std::to_string(tid) + "/syscall";
    char line[64] = "";
    if (FILE *f = std::fopen(path.c_str(), "r")) {
        if (!std::fgets(line, sizeof line, f))
            line[0] = '\0';
        std::fclose(f);
    }
    return std::strtol(line, nullptr, 10) == SYS_futex;
}

int main()
{
    static shop::Store<std::string> store;
    static std::atomic<int> tids[3];
    std::ostringstream list;

    std::thread([] { store.close_for_ever(); }).detach();
    while (!shop::holder)
        usleep(1000);
    for (auto &tid : tids)
        std::thread([&tid] {
            tid = static_cast<int>(syscall(SYS_gettid));
            store.put("goods");
        }).detach();
    for (auto &tid : tids) {
        while (!tid || shop::inside < 3 || !asleep(tid))
            usleep(1000);
        list << (list.tellp() > 0 ? "," : "") << tid;
    }
    std::printf("{\"pid\":%d,\"kind\":\"mutex\",\"class\":\"lock\",\"address\":\"%p\","
                "\"waiters\":3,\"waiter_tids\":[%s],\"holder_tid\":%d,\"threads\":5}\n",
                getpid(), static_cast<void *>(&shop::Store<std::string>::guard), list.str().c_str(),
                shop::holder.load());
    std::fflush(stdout);
    while (std::getchar() != EOF)
        ;
    _exit(0);
}
